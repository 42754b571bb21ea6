"""The transaction that enqueues, as bytes, and what is made of its replies."""

import hiredis
import pytest

from cluster_serving.client.errors import RedisRefused
from cluster_serving.client.protocol.admission import (
    Records,
    admitted,
    answered,
    deadline,
    question,
    queue_full,
    transaction,
)
from cluster_serving.client.protocol.resp import joined

FULL = "Redis queue is full, please wait for inference or delete the unprocessed records. "
LIMIT = FULL + "(the stream job holds maxQueueLength records)"


def test_it_is_what_hiredis_makes_of_its_commands() -> None:
    first = Records([[b"uri", b"a", b"tensor:x", b"\r\n\x00" * 3000], [b"uri", b"b"]], [b"reply", b"k"])
    second = Records([[b"uri", "ü".encode()]], [])

    packet = transaction("jöb", first, second)

    name, begin = "jöb".encode(), (b"XADD", "jöb".encode(), b"*")
    keys = (b"cluster-serving.limits_" + name, b"cluster-serving.full_" + name)
    script = question("jöb", 1)[1]
    commands = [
        (b"MULTI",),
        (*begin, b"uri", b"a", b"tensor:x", b"\r\n\x00" * 3000, b"reply", b"k"),
        (*begin, b"uri", b"b", b"reply", b"k"),
        (*begin, b"uri", "ü".encode()),
        (b"EVAL", script, 3, name, *keys, 3, 0),
        (b"EXEC",),
    ]
    assert joined([packet]) == b"".join(map(hiredis.pack_command, commands))  # type: ignore[arg-type]
    assert packet.replies == len(commands)


@pytest.mark.parametrize(("life_s", "field"), [(0.0125, b"+12"), (60.0, b"+60000"), (-1.0, b"+0")])
def test_a_life_counts_from_when_redis_takes_the_record(life_s: float, field: bytes) -> None:
    assert deadline(life_s) == [b"deadline", field]


def test_one_that_may_wait_for_ever_says_nothing() -> None:
    assert deadline(float("inf")) == []


def test_all_were_admitted() -> None:
    assert admitted("job", [b"1-0", b"1-1", [0, None]]) == ([b"1-0", b"1-1"], None)


def test_what_was_taken_back_are_the_last_ones_and_the_words_are_those_of_the_original() -> None:
    taken, full = admitted("job", [b"1-0", b"1-1", b"1-2", [2, None]])

    assert (taken, str(full)) == ([b"1-0"], LIMIT)


def test_a_node_says_why_nothing_is_admitted() -> None:
    taken, full = admitted("job", [b"1-0", [1, b"no memory"]])

    assert (taken, str(full)) == ([], FULL + "(no memory)")
    assert str(queue_full("no memory")) == str(full)


@pytest.mark.parametrize("answer", [(0, None), (3, LIMIT)])
def test_an_answer_before_anything_is_sent(answer: tuple[int, str | None]) -> None:
    surplus, full = answered("job", [answer[0], None])

    assert (surplus, full and str(full)) == answer


def test_an_error_among_the_replies_is_raised() -> None:
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        admitted("job", [RedisRefused("WRONGTYPE of a key"), [0, None]])
