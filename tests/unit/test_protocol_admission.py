"""The transaction that enqueues, as bytes, and what is made of its replies."""

from typing import Any

import hiredis
import pytest

from cluster_serving.client.errors import ConnectionLost, InvalidValue, QueueFull, Unavailable
from cluster_serving.client.protocol.admission import (
    Admission,
    Records,
    Send,
    State,
    check,
    chunks,
    deadline,
    question,
    transaction,
)
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.resp import Packet, joined

QUEUED = [b"OK", b"QUEUED"]
FULL = "Redis queue is full, please wait for inference or delete the unprocessed records. "
MEMORY = "Please check if Redis version > 5, if yes, memory may be full, try dequeue or delete."
LIMIT = FULL + "(the stream job holds maxQueueLength records)"


def sent(packet: Packet) -> list[list[bytes]]:
    """Commands, as Redis reads them."""
    reader = hiredis.Reader()
    reader.feed(joined([packet])[0])
    return list(iter(reader.gets, False))


def answered(*results: Any) -> list[Any]:
    """Replies to a transaction with these results."""
    return [*QUEUED, list(results)]


def refused(text: str) -> list[Any]:
    """Replies to a transaction of which Redis refuses a command."""
    return [b"OK", RedisRefused(text), RedisRefused("EXECABORT Transaction discarded because of previous errors.")]


def under_way(admission: Admission, records: int, **settings: Any) -> Send:
    """A send that has left."""
    send = Send([[b"uri", b"%d" % number] for number in range(records)], **settings)
    admission.next([send], 0)
    return send


def test_it_is_what_hiredis_makes_of_its_commands() -> None:
    first = Records([[b"uri", b"a", b"tensor:x", b"\r\n\x00" * 3000], [b"uri", b"b"]], [b"reply", b"k"])
    second = Records([[b"uri", "ü".encode()]], [])

    packet = transaction("jöb", first, second)

    name, begin = "jöb".encode(), (b"XADD", "jöb".encode(), b"*")
    keys = (b"cluster-serving.limits_" + name, b"cluster-serving.full_" + name)
    script = sent(question("jöb", 1))[0][1]
    commands = [
        (b"MULTI",),
        (*begin, b"uri", b"a", b"tensor:x", b"\r\n\x00" * 3000, b"reply", b"k"),
        (*begin, b"uri", b"b", b"reply", b"k"),
        (*begin, b"uri", "ü".encode()),
        (b"EVAL", script, 3, name, *keys, 3, 0),
        (b"EXEC",),
    ]
    assert joined([packet])[0] == b"".join(map(hiredis.pack_command, commands))  # type: ignore[arg-type]
    assert packet.replies == len(commands)


@pytest.mark.parametrize(("life_s", "field"), [(0.0125, b"+12"), (60.0, b"+60000"), (-1.0, b"+0")])
def test_a_life_counts_from_when_redis_takes_the_record(life_s: float, field: bytes) -> None:
    assert deadline(life_s) == [b"deadline", field]


def test_one_that_may_wait_for_ever_says_nothing() -> None:
    assert deadline(float("inf")) == []


def test_all_were_admitted() -> None:
    admission = Admission("job")
    send = under_way(admission, 2)
    assert send.state is State.SENT

    admission.receive([send], answered(b"1-0", b"1-1", [0, None]))

    assert (send.state, send.ids, send.error) == (State.TAKEN, [b"1-0", b"1-1"], None)
    assert admission.room


@pytest.mark.parametrize(("why", "text"), [(None, LIMIT), (b"no memory", FULL + "(no memory)")])
def test_what_was_taken_back_are_the_last_ones_and_redis_is_asked_before_they_are_sent_again(
    why: bytes | None, text: str
) -> None:
    """The words are those of the original, or those of a node."""
    admission = Admission("job")
    send = under_way(admission, 3)

    admission.receive([send], answered(b"1-0", b"1-1", b"1-2", [2, why]))

    assert (send.state, send.ids, str(send.error)) == (State.HELD, [b"1-0"], text)
    assert sent(admission.next([send], 0)) == sent(question("job", 2))


@pytest.mark.parametrize(("surplus", "sent_next"), [(0, [b"0", b"1"]), (1, [b"0"])])
def test_what_has_room_is_sent_at_once(surplus: int, sent_next: list[bytes]) -> None:
    admission = Admission("job")
    admission.room = 0
    send = under_way(admission, 2)

    admission.receive([send], [[surplus, None]])

    assert (send.state, send.pause_s(0, 0)) == (State.HELD, 0)
    _, *records, _, _ = sent(admission.next([send], 0))
    assert [record[-1] for record in records] == sent_next


def test_without_room_redis_is_asked_again_after_a_pause() -> None:
    admission = Admission("job")
    admission.room = 0
    send = under_way(admission, 2)

    admission.receive([send], [[2, None]])

    assert (send.state, str(send.error), send.pause_s(0, 1)) == (State.HELD, LIMIT, 0.01)
    assert sent(admission.next([send], 0)) == sent(question("job", 2))


def test_a_pause_is_short_again_when_there_has_been_room() -> None:
    admission = Admission("job")
    send = under_way(admission, 2)
    admission.receive([send], answered(b"1-0", b"1-1", [2, None]))
    pauses_s = [send.pause_s(0, 9) for _ in range(2)]
    admission.receive([send], [[1, None]])
    admission.next([send], 0)
    admission.receive([send], answered(b"1-2", [0, None]))
    admission.receive([send], [[1, None]])

    assert [*pauses_s, send.pause_s(0, 9)] == [0.01, 0.02, 0.01]


def test_sends_that_leave_together() -> None:
    """The first has room, the second in part; the third is not even sent, so a lost connection leaves it as it was."""
    admission = Admission("job")
    sends = [Send([[b"uri", b"a"], [b"uri", b"b"]]) for _ in range(3)]
    admission.room = 3

    admission.next(sends, 0)

    assert [send.state for send in sends] == [State.SENT, State.SENT, State.HELD]


def test_transactions_that_overlap_wait_for_their_own_copies() -> None:
    """Two threads with a connection each share the admission."""
    admission = Admission("job", lambda: 1)
    durable = under_way(admission, 1, durable=True)
    other = under_way(admission, 1)
    late = under_way(admission, 1, durable=True)

    admission.receive([durable], [*answered(b"1-0", [0, None]), 1])
    admission.receive([other], answered(b"1-1", [0, None]))
    admission.receive([late], [*answered(b"1-2", [0, None]), 0])

    assert [durable.state, other.state, late.state] == [State.TAKEN, State.TAKEN, State.LOST]


@pytest.mark.parametrize(
    ("text", "state", "error"),
    [
        ("OOM command not allowed", State.HELD, QueueFull(f"{FULL}(the stream job: OOM command not allowed {MEMORY})")),
        ("WRONGTYPE of a key", State.REFUSED, RedisRefused("cannot enqueue to the job job: WRONGTYPE of a key")),
    ],
)
@pytest.mark.parametrize("at", ["a command", "its result"])
def test_a_refusal(at: str, text: str, state: State, error: Exception) -> None:
    admission = Admission("job")
    send = under_way(admission, 1)

    admission.receive([send], refused(text) if at == "a command" else answered(RedisRefused(text), [0, None]))

    assert (send.state, repr(send.error), send.ids) == (state, repr(error), [])


def test_a_redis_that_cannot_serve() -> None:
    """Its address is not known here, so the refusal is raised."""
    admission = Admission("job")
    send = under_way(admission, 1)

    with pytest.raises(RedisRefused, match="LOADING"):
        admission.receive([send], refused("LOADING Redis is loading the dataset in memory"))

    assert (send.state, send.error, send.pause_s(0, 0)) == (State.HELD, None, 0)


@pytest.mark.parametrize(
    ("state", "error", "becomes", "kind"),
    [
        (State.SENT, ConnectionLost("broke"), State.LOST, ConnectionLost),
        (State.SENT, Unavailable("refused"), State.HELD, Unavailable),
        (State.HELD, ConnectionLost("broke"), State.HELD, Unavailable),
        (State.HELD, Unavailable("refused"), State.HELD, Unavailable),
        (State.HELD, QueueFull("no memory for the reply stream"), State.HELD, QueueFull),
    ],
)
def test_an_exchange_that_fails(
    state: State, error: QueueFull | ConnectionLost, becomes: State, kind: type[Exception]
) -> None:
    """The same broken connection says nothing of records that were sent, and that records are safe that were not."""
    send = Send([[b"uri", b"a"]])
    send.state = state

    send.fail(error)

    assert (send.state, type(send.error), str(send.error)) == (becomes, kind, str(error))


@pytest.mark.parametrize("error", [QueueFull("full"), Unavailable("refused")])
def test_an_error_says_how_many_of_its_call_were_taken(error: QueueFull | ConnectionLost) -> None:
    admission = Admission("job")
    send = under_way(admission, 2, before=128)
    admission.receive([send], answered(b"1-0", b"1-1", [1, None]))
    send.fail(error)

    assert send.pause_s(now_s=5, give_up_s=5) == 0

    assert (send.state, type(send.error)) == (State.REFUSED, type(error))
    assert isinstance(send.error, QueueFull | ConnectionLost)
    assert send.error.accepted == 129


def test_a_value_that_is_too_long_for_redis() -> None:
    longest, too_long = bytes(512 << 20), bytes((512 << 20) + 1)  # without memory, because nobody writes to the pages
    fields = [b"uri", b"a", b"tensor:y", b"", b"tensor:x", too_long]
    check([b"uri", b"a", b"tensor:x", longest])
    assert [*chunks([[b"uri", b"a", b"tensor:x", longest]])]

    for refuse in (lambda: check(fields), lambda: [*chunks([fields])]):
        with pytest.raises(InvalidValue, match="'tensor:x' has 536,870,913 bytes, and Redis takes 536,870,912"):
            refuse()
