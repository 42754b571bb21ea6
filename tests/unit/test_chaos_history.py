"""The checker finds what it is there to find: each way in which a run can go wrong fails the check that is named for it."""

from collections.abc import Callable

import pytest

from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.chaos.callers.tally import Tally
from cluster_serving.node.chaos.history import Acceptance, History, SeenDeadLetter, SeenOutcome, check
from cluster_serving.node.chaos.records import RIGHT, RecordKind, SentRecord

DEADLY = {
    RecordKind.RAISING: ErrorCode.INFERENCE_FAILED,
    RecordKind.CRASHING: ErrorCode.WORKER_DIED,
    RecordKind.HANGING: ErrorCode.WORKER_HUNG,
}
WHAT = {
    **dict.fromkeys((RecordKind.GOOD, RecordKind.SLOW, RecordKind.IMPATIENT), RIGHT),
    **DEADLY,
    RecordKind.EXPIRED: ErrorCode.DEADLINE_EXCEEDED,
    RecordKind.MALFORMED: ErrorCode.INVALID_INPUT,
}


LEFT, BEGUN = "breaks.1.0.7", "breaks.1.1.7"  # accepted, and the result not taken; the taking was interrupted


def outcome(what: str, digest: bytes = b"1") -> SeenOutcome:
    return SeenOutcome(what, "", digest)


def fine() -> History:
    """A run in which all is as it should be: one record of each kind, one refused, one of unknown acceptance."""
    history = History(batch=8)
    for number, (kind, what) in enumerate(WHAT.items()):
        history.sending(SentRecord(kind, kind, number, replies=kind is RecordKind.GOOD))
        history.sent(kind, Acceptance.ACCEPTED, f"{number}-0")
        history.seen(kind, outcome(what))
        if kind in DEADLY:
            history.dead_letters.append(SeenDeadLetter(kind, what))
            history.runs[number] = 5
    history.replies[RecordKind.GOOD] = 1
    history.calm.add(RecordKind.SLOW)
    history.runs[history.records[RecordKind.SLOW].sample] = 1
    for uri, acceptance in (("refused", Acceptance.REFUSED), ("unknown", Acceptance.UNKNOWN)):
        history.sending(SentRecord(uri, RecordKind.GOOD, 50))
        history.sent(uri, acceptance)
    history.callers["breaks"] = Tally(right=3, left={LEFT: True, BEGUN: False})
    return history


def taken(history: History) -> dict[str, str]:
    """The results that the harvest took: all, unless a test takes some away."""
    if not history.harvest.taken:
        history.harvest.taken = {name: what for name, (_, what) in history.in_redis().items()} | {LEFT: RIGHT}
    return history.harvest.taken


def failed(history: History) -> set[str]:
    taken(history)
    return {verdict.check for verdict in check(history) if not verdict.passed}


def test_a_run_without_fault_passes() -> None:
    assert failed(fine()) == set()


def test_a_record_of_unknown_acceptance_may_have_been_taken() -> None:
    history = fine()
    history.seen("unknown", outcome(RIGHT))

    assert failed(history) == set()


def test_an_impatient_record_may_be_too_late() -> None:
    history = fine()
    history.outcomes[RecordKind.IMPATIENT] = outcome(ErrorCode.DEADLINE_EXCEEDED)

    assert failed(history) == set()


def test_an_interrupt_may_lose_one_result() -> None:
    history = fine()
    del taken(history)[LEFT]
    history.harvest.stopped = 1

    assert failed(history) == set()


def lose(history: History) -> None:
    del history.outcomes[RecordKind.GOOD]


def change(history: History) -> None:
    history.seen(RecordKind.GOOD, outcome(RIGHT, b"2"))


def take_away(history: History) -> None:
    history.vanished(RecordKind.GOOD)


def answer_wrongly(history: History) -> None:
    history.outcomes[RecordKind.GOOD] = outcome("wrong")


def blame_a_neighbour(history: History) -> None:
    history.outcomes[RecordKind.SLOW] = outcome(ErrorCode.WORKER_DIED)


def answer_wrongly_what_may_be_late(history: History) -> None:
    history.outcomes[RecordKind.IMPATIENT] = outcome("wrong")


def run_what_was_expired(history: History) -> None:
    history.outcomes[RecordKind.EXPIRED] = outcome(RIGHT)


def answer_an_unknown_one_wrongly(history: History) -> None:
    history.seen("unknown", outcome("wrong"))


def answer_a_refused_one(history: History) -> None:
    history.seen("refused", outcome(RIGHT))


def reply_twice(history: History) -> None:
    history.replies[RecordKind.GOOD] = 2


def reply_never(history: History) -> None:
    history.replies.clear()


def bury_nobody(history: History) -> None:
    history.dead_letters.pop()


def bury_twice(history: History) -> None:
    history.dead_letters.append(history.dead_letters[0])


def bury_a_good_one(history: History) -> None:
    history.dead_letters.append(SeenDeadLetter(RecordKind.GOOD, RIGHT))


def bury_a_stranger(history: History) -> None:
    history.dead_letters.append(SeenDeadLetter("nobody", "WorkerDied"))


def bury_for_another_reason(history: History) -> None:
    history.dead_letters[0] = SeenDeadLetter(RecordKind.RAISING, ErrorCode.WORKER_DIED)


def run_too_often(history: History) -> None:
    history.runs[history.records[RecordKind.CRASHING].sample] = 6


def run_a_slow_one_twice(history: History) -> None:
    history.runs[history.records[RecordKind.SLOW].sample] = 2


def leave_a_process(history: History) -> None:
    history.remains.processes.append("17: reader")


def leave_a_segment(history: History) -> None:
    history.remains.segments.append("process 17 holds a ring")


def leave_a_consumer(history: History) -> None:
    history.remains.consumers.append("consumer a")


def leave_an_entry(history: History) -> None:
    history.remains.entries = 1


def leave_something_pending(history: History) -> None:
    history.remains.pending = 1


def redeliver(history: History) -> None:
    history.outcomes[RecordKind.SLOW] = SeenOutcome(RIGHT, "", b"1", deliveries=2)


def answer_a_caller_wrongly(history: History) -> None:
    history.callers["breaks"].wrong.append("sample 7: 8")


def fail_a_caller(history: History) -> None:
    history.callers["breaks"].failed.append("TypeError: an int")


def crash_at_the_harvest(history: History) -> None:
    history.harvest.failed.append("the program ended with -11")


def lose_a_result_of_a_caller(history: History) -> None:
    del taken(history)[LEFT]


def lose_more_results_than_interrupts(history: History) -> None:
    del taken(history)[LEFT], taken(history)[RecordKind.SLOW]
    history.harvest.stopped = 1


def give_another_result(history: History) -> None:
    taken(history)[RecordKind.RAISING] = RIGHT


def give_a_wrong_result(history: History) -> None:
    taken(history)[BEGUN] = "wrong: 8"


def end_by_itself(history: History) -> None:
    history.remains.endings.append("node 1 ended by itself")


BURIED = "dead letters are the poison records, once each"
CALLERS_RIGHT = "callers get the model's own answers"
CALLERS_ANSWERED = "callers get an answer, or an error that a fault may cause"
TAKEN = "results are taken as they were"
TAKEN_ALL = "loops left early lose no result, and each interrupt at most one"
RUNS = "a poison record is run log2(batch)+2 times a delivery, at most"


@pytest.mark.parametrize(
    ("harm", "noticed"),
    [
        (lose, "accepted records have an outcome"),
        (change, "an outcome never changes"),
        (take_away, "an outcome never changes"),
        (answer_wrongly, "good records get the right answer"),
        (blame_a_neighbour, "slow records get the right answer"),
        (answer_wrongly_what_may_be_late, "impatient records get the right answer or DeadlineExceeded"),
        (run_what_was_expired, "expired records get DeadlineExceeded"),
        (answer_an_unknown_one_wrongly, "good records get the right answer"),
        (answer_a_refused_one, "refused records have no outcome"),
        (reply_twice, "a record that waits gets one reply"),
        (reply_never, "a record that waits gets one reply"),
        (bury_nobody, BURIED),
        (bury_twice, BURIED),
        (bury_a_good_one, BURIED),
        (bury_a_stranger, BURIED),
        (bury_for_another_reason, "a dead letter says what the answer says"),
        (run_too_often, RUNS),
        (run_a_slow_one_twice, "a slow record is run once: its lease is renewed"),
        (redeliver, "before any fault, a record is delivered once"),
        (answer_a_caller_wrongly, CALLERS_RIGHT),
        (fail_a_caller, CALLERS_ANSWERED),
        (crash_at_the_harvest, CALLERS_ANSWERED),
        (lose_a_result_of_a_caller, TAKEN_ALL),
        (lose_more_results_than_interrupts, TAKEN_ALL),
        (give_another_result, TAKEN),
        (give_a_wrong_result, TAKEN),
        (leave_a_process, "no process is left"),
        (leave_a_segment, "no memory segment is left"),
        (leave_a_consumer, "no consumer is left in the group"),
        (leave_an_entry, "the stream is empty"),
        (leave_something_pending, "nothing is pending"),
        (end_by_itself, "nodes come back, and end only when they are told to, with exit code 0"),
    ],
)
def test_harm_is_noticed_and_the_offender_named(harm: Callable[[History], None], noticed: str) -> None:
    history = fine()

    harm(history)

    assert failed(history) == {noticed}
    assert all(verdict.first for verdict in check(history) if not verdict.passed)


def test_results_of_a_load_without_callers_are_left_in_redis() -> None:
    history = fine()
    history.callers.clear()

    assert all(verdict.passed for verdict in check(history))


@pytest.mark.parametrize(("deliveries", "disturbances"), [(2, 0), (1, 1)])
def test_a_poison_record_is_run_again_for_each_time_that_its_node_died(deliveries: int, disturbances: int) -> None:
    history = fine()
    history.runs[history.records[RecordKind.CRASHING].sample] = 10
    history.disturbances = disturbances
    history.dead_letters = [
        SeenDeadLetter(each.uri, each.code, deliveries if each.uri == RecordKind.CRASHING else 1)
        for each in history.dead_letters
    ]

    assert failed(history) == set()
