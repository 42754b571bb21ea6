"""The commands of a reply stream, and what is made of the replies; test_protocol_walks.py has what comes of them in a row."""

import math
from typing import Any

import pytest

from cluster_serving.client.errors import ClusterServingError, QueueFull
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.reply_stream import ReplyStream
from cluster_serving.client.wire.reply import pack

RENEWAL = ("PEXPIRE", "key", 60_000)
REASON = "no node lives"
EXISTS = RedisRefused("BUSYGROUP Consumer Group name already exists")


def made() -> ReplyStream:
    """A stream that was made at the second 0."""
    stream = ReplyStream("key")
    stream.made([b"OK", 1], 0)
    return stream


def found(*ids: bytes, size: int = 1) -> list[Any]:
    """The reply to XREAD."""
    return [[b"key", [[entry_id, [b"batch", b"x" * size]] for entry_id in ids]]]


def test_it_is_made() -> None:
    stream = ReplyStream("key")

    assert stream.is_unsure(0)
    assert stream.make() == (("XGROUP", "CREATE", "key", "client", "$", "MKSTREAM"), RENEWAL)
    assert stream.reply == [b"reply", b"key"]


@pytest.mark.parametrize("replies", [[b"OK", 1], [EXISTS, 1]])
def test_it_is_there_for_ten_seconds(replies: list[Any]) -> None:
    stream = ReplyStream("key")

    stream.made(replies, 5)

    assert [stream.is_unsure(now_s) for now_s in (5, 15, 15.1)] == [False, False, True]
    stream.doubt()
    assert stream.is_unsure(5)


@pytest.mark.parametrize(
    ("replies", "error"),
    [
        (
            [RedisRefused("OOM command not allowed"), 0],
            QueueFull(
                "Redis queue is full, please wait for inference or delete the unprocessed records. "
                "(the reply stream key: OOM command not allowed)"
            ),
        ),
        (
            [RedisRefused("WRONGTYPE of a key"), 1],
            RedisRefused("cannot make the reply stream key: WRONGTYPE of a key"),
        ),
        (
            [EXISTS, RedisRefused("NOPERM no permissions")],
            RedisRefused("cannot make the reply stream key: NOPERM no permissions"),
        ),
        (
            [RedisRefused("LOADING the dataset"), RedisRefused("LOADING the dataset")],
            RedisRefused("LOADING the dataset"),
        ),
    ],
)
def test_it_cannot_be_made(replies: list[Any], error: ClusterServingError) -> None:
    stream = ReplyStream("key")

    with pytest.raises(type(error)) as raised:
        stream.made(replies, 0)

    assert repr(raised.value) == repr(error)
    assert stream.is_unsure(0)


@pytest.mark.parametrize(
    ("block_s", "block"),
    [(0, ()), (-1, ()), (1e-6, ("BLOCK", b"1")), (0.0125, ("BLOCK", b"12")), (1, ("BLOCK", b"1000"))],
)
def test_a_read_waits(block_s: float, block: tuple[Any, ...]) -> None:
    assert made().read(0, block_s) == (("XREAD", "COUNT", b"64", *block, "STREAMS", "key", b"0-0"),)


def test_a_read_begins_after_the_last() -> None:
    stream = made()

    assert stream.receive([found(b"5-1", b"5-2")]) == found(b"5-1", b"5-2")[0][1]

    assert stream.read(0, 0) == (("XREAD", "COUNT", b"64", "STREAMS", "key", b"5-2"),)


@pytest.mark.parametrize(
    ("reply", "now_s", "due"),
    [
        (found(b"5-9"), 4.9, False),
        (found(b"5-9"), 5, True),
        (found(b"5-9", size=1 << 16), 0, True),
        (found(b"5-8", b"5-9", size=1 << 15), 0, True),
        (None, 0, True),
    ],
)
def test_a_read_renews_and_trims_when_due(reply: Any, now_s: float, due: bool) -> None:
    stream = made()
    stream.read(0, 1)
    stream.receive([reply])

    commands = stream.read(now_s, 1)

    least = b"5-10" if reply else b"0-1"
    assert commands[:-1] == ((RENEWAL, ("XTRIM", "key", "MINID", least)) if due else ())
    stream.receive([*[1] * (len(commands) - 1), found(b"6-0")])
    assert len(stream.read(now_s, 1)) == 1


def test_a_look_that_finds_nothing_is_no_idle_read() -> None:
    stream = made()
    stream.read(0, 0)
    stream.receive([None])

    assert len(stream.read(0, 0)) == 1


@pytest.mark.parametrize(("pause_s", "life_ms"), [(0, 60_000), (600, 660_000), (math.inf, (6 * 3600 + 60) * 1000)])
def test_it_outlives_pauses(pause_s: float, life_ms: int) -> None:
    stream = made()

    stream.outlive(pause_s)

    assert stream.is_unsure(0) == (pause_s > 0), "the time to live in Redis is too short"
    assert stream.make()[1] == ("PEXPIRE", "key", life_ms)
    stream.made([EXISTS, 1], 0)
    assert not stream.is_unsure(0)
    stream.outlive(0)
    assert stream.read(5, 0)[0] == ("PEXPIRE", "key", life_ms), "the longest pause counts"


def test_without_waiting_calls_it_lives_for_a_minute_again() -> None:
    stream = made()
    stream.outlive(600)
    stream.made([EXISTS, 1], 0)

    stream.settle()

    assert not stream.is_unsure(0), "nothing has to be sent for it"
    assert stream.read(5, 0)[0] == RENEWAL


def test_after_doubt_it_is_read_from_the_beginning() -> None:
    stream = made()
    stream.receive([found(b"5-0")])

    stream.doubt()
    stream.made([EXISTS, 1], 0)

    assert stream.read(0, 0) == (("XREAD", "COUNT", b"64", "STREAMS", "key", b"0-0"),)


@pytest.mark.parametrize(
    ("block_s", "replies", "silent"),
    [
        (1, [[None]], True),
        (0, [[None]], False),
        (1, [[found(b"5-0")]], False),
        (1, [[found(b"5-0")], [None]], False),
        (1, [[found(b"5-0")], [0, 0, None]], True),
    ],
)
def test_it_is_silent_without_a_first_result_and_when_results_may_be_lost(
    block_s: float, replies: list[list[Any]], silent: bool
) -> None:
    stream = made()

    for each in replies:
        stream.read(0, block_s)
        stream.receive(each)

    assert stream.is_silent == silent


def test_what_was_lost_does_not_count_once_nothing_is_waited_for() -> None:
    stream = made()
    stream.receive([found(b"5-0")])
    stream.doubt()
    stream.read(0, 1)
    stream.receive([1, 0, None])
    assert stream.is_silent

    stream.settle()

    assert not stream.is_silent


@pytest.mark.parametrize("count", [63, 64])
def test_a_full_page_may_leave_entries(count: int) -> None:
    stream = made()

    stream.receive([found(*(b"5-%d" % number for number in range(count)))])

    assert stream.more == (count == 64)


@pytest.mark.parametrize("replies", [[None], [1, 0, None]])
def test_nothing_came(replies: list[Any]) -> None:
    stream = made()

    assert not stream.receive(replies)
    assert str(stream.no_result("of 'a' in time", REASON)) == "no result of 'a' in time; no node lives"


def test_it_has_vanished() -> None:
    stream = made()

    assert not stream.receive([0, 0, None])

    assert stream.is_unsure(0)
    assert str(stream.no_result("in time", REASON)) == "no result in time; the reply stream was deleted meanwhile"


@pytest.mark.parametrize(
    ("text", "message"),
    [("WRONGTYPE of a key", "the reply stream key: WRONGTYPE of a key"), ("LOADING dataset", "LOADING dataset")],
)
def test_a_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(RedisRefused) as raised:
        made().receive([1, RedisRefused(text), RedisRefused(text)])

    assert str(raised.value) == message


def test_results() -> None:
    entry = [b"5-0", [b"batch", b"{}", b"a", pack(b"1-0", 1, 1, [b"value", b"5"]), b"b", pack(b"1-1", 1, 1, [])]]

    results = made().results([[[b"key", [entry]]]])

    assert [(result.uri, result.value) for result in results] == [("a", 5), ("b", None)]
