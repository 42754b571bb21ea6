"""Step 3 of the writer: the address of each result, in the keys and arguments of `finish.lua`."""

from cluster_serving.client import keys
from cluster_serving.client.wire.dead_letter import Reason
from cluster_serving.node.ring.metrics import Count
from cluster_serving.node.ring.slot import Row
from cluster_serving.node.writer.address import FinishCall, JobAddress

JOB = JobAddress.of("job", 60_000, 10, 1 << 20)
BATCH = b'{"node":"n"}'
ANSWERED = (Count.ANSWERED,)
DEAD = (Count.FAILED, Count.DEAD)
SETTINGS = [b"serving", b"60000", b"10", b"1048576", BATCH]


def row(number: int, reply: bytes = b"") -> Row:
    return Row(b"5-%d" % number, b"u%d" % number, reply, 0, number)


def test_a_result_goes_to_the_reply_stream_of_its_client_or_to_a_hash() -> None:
    call = FinishCall(JOB, BATCH)
    call.add(row(0), [b"value", b"0"], ANSWERED)
    call.add(row(1, b"one"), [b"u1", b"packed 1"], ANSWERED)
    call.add(row(2, b"two"), [b"u2", b"packed 2"], ANSWERED)
    call.add(row(3), [b"value", b"3", b"receipt", b"{}"], ANSWERED)
    call.add(row(4, b"one"), [b"u4", b"packed 4"], ANSWERED)

    assert call.keys() == [
        *(b"job", b"cluster-serving.dead_job"),
        *(b"one", b"two"),
        *(b"cluster-serving_job:u0", b"cluster-serving_job:u3"),
    ]
    assert call.arguments() == [
        *(*SETTINGS, b"2", b"0"),
        *(b"5-0", b"0", b"2", b"value", b"0"),
        *(b"5-1", b"1", b"u1", b"packed 1"),
        *(b"5-2", b"2", b"u2", b"packed 2"),
        *(b"5-3", b"0", b"4", b"value", b"3", b"receipt", b"{}"),
        *(b"5-4", b"1", b"u4", b"packed 4"),
    ]
    assert call.size == sum(map(len, (b"value0", b"u1packed 1", b"u2packed 2", b"value3receipt{}", b"u4packed 4")))


def test_a_result_for_later_goes_to_the_hash_of_its_call() -> None:
    later = keys.later_key("job", "0a")
    call = FinishCall(JOB, BATCH)
    call.add(row(0, b"one"), [b"u0", b"packed 0"], ANSWERED)
    call.add(row(1, later.encode()), [b"u1", b"packed 1"], ANSWERED)

    assert call.keys()[2:] == [b"one", later.encode()]
    assert call.arguments()[-8:] == [b"5-0", b"1", b"u0", b"packed 0", b"5-1", b"-2", b"u1", b"packed 1"]


def test_a_dead_letter_has_the_number_of_its_row() -> None:
    reason = Reason("InferenceFailed")
    call = FinishCall(JOB, BATCH)
    call.add(row(0), [b"value", b"0"], ANSWERED)
    call.add(row(1), [b"error", b"{}"], DEAD, reason)

    assert call.counts == [ANSWERED, DEAD]
    assert call.dead == [(row(1), reason)]
    assert call.arguments()[5:9] == [b"0", b"1", b"2", reason.encode()]
    assert call.arguments()[-5:] == [b"5-1", b"0", b"2", b"error", b"{}"]


def test_a_dead_letter_without_a_result_has_no_address() -> None:
    reason = Reason("Unpublished")
    call = FinishCall(JOB, BATCH)
    call.bury(row(0, b"refused"), DEAD, reason)

    assert call.keys() == [b"job", b"cluster-serving.dead_job"]
    assert call.arguments() == [*SETTINGS, b"0", b"1", b"1", reason.encode(), b"5-0", b"0", b"0"]
    assert (call.counts, call.dead, call.size) == ([DEAD], [(row(0, b"refused"), reason)], 0)
