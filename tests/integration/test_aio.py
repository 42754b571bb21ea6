"""The asyncio queues and their connection when Redis is slow, full, frozen or forgetful, with the test as the node."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
import uvloop

from cluster_serving.client import (
    AsyncInputQueue,
    AsyncOutputQueue,
    ConnectionLost,
    InvalidValue,
    QueueFull,
    RecordFailed,
    ResultTimeout,
    keys,
)
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.aio.replies import AsyncReplies
from cluster_serving.client.aio.tasks import cancel
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.tensors import encode_tensor
from support.clients import answering, replied
from support.private_redis import PrivateRedis
from support.stopped import stopped
from support.wait import until

ROW = np.zeros(3, np.float32)
GOOD = {keys.TENSOR + b"y": encode_tensor(ROW)}
BAD = {keys.TENSOR + b"y": b"no tensor"}


@contextmanager
def no_memory(client: Any) -> Generator[None]:
    """Redis refuses whatever needs memory, until the block ends."""
    client.config_set("maxmemory", "1")
    try:
        yield
    finally:
        client.config_set("maxmemory", "0")


def answer(
    client: Any,
    job: str,
    result_of: Callable[[bytes], dict[bytes, bytes]] = lambda _: GOOD,
    many: int | None = None,
) -> int:
    """Answer every record of a job, or the first ones, as a node does; how many there were."""
    entries = client.xrange(job, count=many)
    for entry_id, fields in entries:
        uri = fields[keys.URI]
        client.xadd(fields[keys.REPLY], replied(uri, result_of(uri)), nomkstream=True)
        client.xdel(job, entry_id)
    return len(entries)


def records(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((f"r{n}", {"t": ROW}) for n in range(count))


def test_a_late_reply_is_not_taken_for_the_next_commands(own_redis: PrivateRedis) -> None:
    async def run() -> None:
        link = AsyncLink(RedisSettings(port=own_redis.port))
        await link.call(("PING",))
        with stopped(own_redis.pid), pytest.raises(ConnectionLost, match="no reply in time"):
            await link.call(("ECHO", "late"), timeout_s=0.3)
        assert not link.connected
        assert await link.call(("ECHO", "next")) == [b"next"]
        await link.close()

    asyncio.run(run())


def test_a_call_that_is_cancelled_leaves_no_reply_behind(redis_server: PrivateRedis) -> None:
    async def run() -> None:
        link = AsyncLink(RedisSettings(port=redis_server.port))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await link.call(("BLPOP", "aio_never", 0.2), ("ECHO", "late"))
        assert await link.call(("ECHO", "next")) == [b"next"]
        await link.close()

    asyncio.run(run())


def test_bytes_that_are_no_reply_lose_the_connection() -> None:
    async def talk_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(b"nonsense\r\n")
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(talk_nonsense, "127.0.0.1") as server:
            link = AsyncLink(RedisSettings(host="127.0.0.1", port=server.sockets[0].getsockname()[1], timeout_s=1))
            with pytest.raises(ConnectionLost):
                await link.call(("PING",))
            assert not link.connected
            await link.close()

    asyncio.run(run())


def test_an_error_reply_stands_among_the_others(redis_server: PrivateRedis) -> None:
    async def run() -> None:
        link = AsyncLink(RedisSettings(port=redis_server.port))
        first, second, third = await link.call(("ECHO", "a"), ("NO_SUCH_COMMAND",), ("ECHO", "b"))
        assert (first, third) == (b"a", b"b")
        assert "unknown command" in str(second)
        await link.close()

    asyncio.run(run())


def test_closing_in_the_middle_of_a_call_ends_it(redis_server: PrivateRedis) -> None:
    async def run() -> None:
        link = AsyncLink(RedisSettings(port=redis_server.port))
        call = asyncio.create_task(link.call(("BLPOP", "aio_closed", 5), ("PING",)))
        await until(lambda: link.connected)
        await link.close()
        with pytest.raises(ConnectionLost):
            await call

    asyncio.run(run())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_was_lost_while_it_idled_is_replaced(
    redis_server: PrivateRedis, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    def descriptors() -> set[str]:
        return {path.name for path in Path("/proc/self/fd").iterdir()}

    async def run() -> None:
        link, before = AsyncLink(RedisSettings(port=redis_server.port)), descriptors()
        (mine,) = await link.call(("CLIENT", "ID"))
        opened = descriptors() - before
        redis_server.client().client_kill_filter(_id=mine)
        await until(lambda: opened - descriptors())
        quiet = [end for _ in range(4) for end in os.pipe()]  # one of them has the number that the socket had
        try:
            assert await link.call(("PING",)) == [b"PONG"]
        finally:
            for end in quiet:
                os.close(end)
            await link.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


def test_any_error_of_a_batch_reaches_its_calls(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("unforeseen")

    async def run() -> None:
        async with AsyncInputQueue(port=redis_server.port, name="aio_unforeseen") as queue:
            with monkeypatch.context() as patch:
                patch.setattr(AsyncLink, "call", refuse)
                outcomes = await asyncio.gather(
                    queue.enqueue("a", t=ROW), queue.enqueue("b", t=ROW), return_exceptions=True
                )
            assert [str(outcome) for outcome in outcomes] == ["unforeseen"] * 2
            assert await queue.enqueue("c", t=ROW)

    asyncio.run(run())


def test_close_ends_what_is_under_way_and_what_has_not_been_sent(own_redis: PrivateRedis) -> None:
    async def run() -> None:
        queue = AsyncInputQueue(port=own_redis.port, timeout_s=60)
        await queue.enqueue("first", t=ROW)
        with stopped(own_redis.pid):
            calls: list[asyncio.Task[Any]] = [asyncio.create_task(queue.enqueue("under way", t=ROW))]
            await asyncio.sleep(0.1)
            calls += [asyncio.create_task(queue.enqueue("unsent", t=ROW)), asyncio.create_task(queue.predict(ROW))]
            await asyncio.sleep(0.1)
            async with asyncio.timeout(20):
                await queue.close()
                outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 3
        assert await queue.enqueue("again", t=ROW)
        await queue.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


@pytest.mark.parametrize("room", [0, 10, 64, 100])
def test_a_full_queue_tells_how_many_of_all_were_accepted(redis_server: PrivateRedis, room: int) -> None:
    job = f"aio_accepted_{room}"

    async def run() -> int:
        async with AsyncInputQueue(port=redis_server.port, name=job, patience_s=0.05) as queue:
            with pytest.raises(QueueFull) as refused:
                await queue.enqueue_many(records(200))
            return refused.value.accepted

    with redis_server.client() as client:
        client.xadd(job, {"uri": "somebody else's"})
        client.hset(keys.limits_key(job), "maxQueueLength", 1 + room)
        accepted = asyncio.run(run())
        sent = [fields[keys.URI] for _, fields in client.xrange(job)][1:]

    assert accepted == room
    assert sent == [b"r%d" % n for n in range(room)]


def test_records_may_come_from_an_asynchronous_source(redis_server: PrivateRedis) -> None:
    async def source() -> AsyncIterator[tuple[str, dict[str, Any]]]:
        for record in records(100):
            await asyncio.sleep(0)
            yield record

    async def run() -> None:
        async with AsyncInputQueue(port=redis_server.port, name="aio_source") as queue:
            assert await queue.enqueue_many(source()) == 100

    asyncio.run(run())
    with redis_server.client() as client:
        assert client.xlen("aio_source") == 100


def test_a_result_that_cannot_be_read_fails_its_own_call_only(redis_server: PrivateRedis) -> None:
    job = "aio_unreadable"

    async def run(client: Any) -> None:
        async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
            answers = queue.as_completed(records(4))
            coming = asyncio.create_task(anext(answers))
            await until(lambda: client.xlen(job) == 4)
            answer(client, job, lambda uri: BAD if uri == b"r1" else GOOD)
            results = {result.uri: result for result in [await coming, *[result async for result in answers]]}
            assert [uri for uri, result in results.items() if result.error] == ["r1"]

            call = asyncio.create_task(queue.predict(ROW))
            await until(lambda: client.xlen(job) == 1)
            answer(client, job, lambda _: BAD)
            with pytest.raises(RecordFailed, match="Unreadable"):
                await call

    with redis_server.client() as client:
        asyncio.run(run(client))


@pytest.mark.parametrize("kind", ["predict_many", "as_completed"])
def test_a_source_may_wait_for_an_answer(redis_server: PrivateRedis, kind: str) -> None:
    job = f"aio_waiting_{kind}"

    async def run() -> None:
        answers = 0

        async def answered(count: int) -> None:
            await until(lambda: answers == count)

        async def source() -> AsyncIterator[Any]:
            for number in range(3):
                await answered(number)
                yield (str(number), {"t": ROW}) if kind == "as_completed" else ROW

        async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
            async for _ in getattr(queue, kind)(source()):
                answers += 1
        assert answers == 3
        assert len(asyncio.all_tasks()) == 1

    with answering(redis_server, job):
        asyncio.run(run())


@pytest.mark.parametrize("kind", ["predict_many", "as_completed"])
def test_results_come_while_a_source_holds_up_the_event_loop(redis_server: PrivateRedis, kind: str) -> None:
    job, asked = f"aio_slow_{kind}", list[int]()

    come: list[Any] = []

    def source() -> Iterator[Any]:
        while len(asked) < 40 or (not come and len(asked) < 2000):
            asked.append(len(asked))
            time.sleep(0.05)
            yield (str(asked[-1]), {"t": ROW}) if kind == "as_completed" else ROW

    async def run() -> None:
        async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
            async for answer in getattr(queue, kind)(source()):
                come.append(answer)
        assert len(come) == len(asked) < 2000

    with answering(redis_server, job):
        asyncio.run(run())


def test_the_timeout_of_as_completed_is_for_the_next_result(redis_server: PrivateRedis) -> None:
    job, count = "aio_next_result", 5

    async def answer_slowly(client: Any) -> None:
        await until(lambda: client.xlen(job) == count)
        for _ in range(count):
            await asyncio.sleep(2.5)
            answer(client, job, many=1)

    async def run(client: Any) -> None:
        async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
            node = asyncio.create_task(answer_slowly(client))
            found = [result.uri async for result in queue.as_completed(records(count), timeout=10)]
            assert found == [f"r{number}" for number in range(count)]
            await node
            with pytest.raises(ResultTimeout, match=r"no result in 0\.1 s"):
                await anext(queue.as_completed(records(2), timeout=0.1))

    with redis_server.client() as client:
        client.hset(keys.limits_key(job), "maxQueueLength", "100")  # there was a node
        asyncio.run(run(client))


def test_a_reply_stream_that_vanishes_is_made_again(own_redis: PrivateRedis) -> None:
    async def run(client: Any) -> None:
        async with AsyncInputQueue(port=own_redis.port) as queue:
            lost = asyncio.create_task(queue.predict(ROW, timeout=30))
            (reply_key,) = await until(lambda: client.keys(keys.reply_key(queue.name, "*")))
            # The ids of the old stream are ahead of those of the new one, as after a failover to a slower clock.
            client.xadd(reply_key, replied(b"nobody's", GOOD), id="9999999999999-0")
            await until(lambda: not client.xlen(reply_key))
            client.flushall()
            await until(lambda: client.exists(reply_key))

            call = asyncio.create_task(queue.predict(ROW, timeout=10))
            await until(lambda: client.xlen(queue.name))
            answer(client, queue.name)
            np.testing.assert_array_equal(await call, ROW)
            lost.cancel()

    with own_redis.client() as client:
        asyncio.run(run(client))


def test_a_result_key_that_holds_something_else_is_an_error(redis_server: PrivateRedis) -> None:
    job = "aio_no_hash"

    async def run() -> None:
        async with AsyncOutputQueue(port=redis_server.port, name=job) as output:
            with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
                await output.query("a")

    with redis_server.client() as client:
        client.set(keys.result_prefix(job) + "a", "no hash")
        asyncio.run(run())


def test_a_reply_key_that_holds_something_else_fails_the_calls(redis_server: PrivateRedis) -> None:
    async def run(client: Any) -> None:
        async with AsyncInputQueue(port=redis_server.port, name="aio_wrong_type") as queue:
            call = asyncio.create_task(queue.predict(ROW, timeout=30))
            (reply_key,) = await until(lambda: client.keys(keys.reply_key(queue.name, "*")))
            await until(lambda: client.xlen(queue.name))
            client.hset(keys.limits_key(queue.name), "maxQueueLength", "0")  # there was a node
            client.set(reply_key, "no stream")
            with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
                await call

    with redis_server.client() as client:
        asyncio.run(run(client))


def test_first_calls_at_once_open_the_stream_once(own_redis: PrivateRedis) -> None:
    async def run(client: Any) -> None:
        async with AsyncInputQueue(port=own_redis.port) as queue:
            calls = [asyncio.create_task(queue.predict(ROW)) for _ in range(20)]
            await until(lambda: client.xlen(queue.name) == 20)
            stats = client.info("commandstats")  # Redis 6.2 counts all subcommands together
            assert (stats.get("cmdstat_xgroup|create") or stats["cmdstat_xgroup"])["calls"] == 1
            answer(client, queue.name)
            assert len(await asyncio.gather(*calls)) == 20

    with own_redis.client() as client:
        asyncio.run(run(client))


def test_predict_on_a_redis_without_memory_is_a_full_queue(own_redis: PrivateRedis) -> None:
    async def run() -> None:
        async with AsyncInputQueue(port=own_redis.port, patience_s=0.05) as queue:
            with pytest.raises(QueueFull, match="maxmemory"):
                await queue.predict(ROW)
            with pytest.raises(QueueFull, match="maxmemory"):
                await queue.enqueue("a", t=ROW)

    with own_redis.client() as client, no_memory(client):
        asyncio.run(run())


def test_the_timeout_holds_while_redis_is_frozen(own_redis: PrivateRedis) -> None:
    async def run(client: Any) -> None:
        async with AsyncInputQueue(port=own_redis.port, timeout_s=40) as queue:
            with stopped(own_redis.pid):
                assert await seconds_to_time_out(queue.predict(ROW, timeout=0.4)) < 20  # no connection yet
            call = asyncio.create_task(queue.predict(ROW))
            await until(lambda: client.xlen(queue.name))
            answer(client, queue.name)
            await call
            with stopped(own_redis.pid):
                assert await seconds_to_time_out(queue.predict(ROW, timeout=0.4)) < 20
                assert await seconds_to_time_out(queue.predict(ROW, timeout=0.4)) < 20  # behind the one before

    with own_redis.client() as client:
        asyncio.run(run(client))


def test_the_timeout_holds_while_the_queue_is_full(redis_server: PrivateRedis) -> None:
    job = "aio_full"

    async def run(client: Any) -> None:
        async with AsyncInputQueue(port=redis_server.port, name=job, patience_s=30) as queue:
            await queue.enqueue("first", t=ROW)
            with pytest.raises(QueueFull):
                async with asyncio.timeout(15):  # half of the patience
                    await queue.predict(ROW, timeout=2)
            client.delete(keys.limits_key(job))
            await queue.enqueue("last", t=ROW)

    with redis_server.client() as client:
        client.hset(keys.limits_key(job), "maxQueueLength", "1")
        asyncio.run(run(client))
        assert [fields[keys.URI] for _, fields in client.xrange(job)] == [b"first", b"last"]


async def seconds_to_time_out(call: Coroutine[Any, Any, Any]) -> float:
    """Return the seconds until the call raises `ResultTimeout`."""
    start_s = time.monotonic()
    with pytest.raises(ResultTimeout):
        await call
    return time.monotonic() - start_s


def test_two_records_of_one_uri_cannot_be_under_way(redis_server: PrivateRedis) -> None:
    async def run() -> None:
        async with AsyncInputQueue(port=redis_server.port, name="aio_twice") as queue:
            twice = [("same", {"t": ROW}), ("same", {"t": ROW})]
            with pytest.raises(InvalidValue, match="'same'"):
                async for _ in queue.as_completed(twice, window=2):
                    pass
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


def test_the_original_dialect_has_no_predict(redis_server: PrivateRedis) -> None:
    async def run() -> None:
        async with AsyncInputQueue(port=redis_server.port, name="aio_original", dialect="original") as queue:
            assert queue.data_to_b64(t=ROW)
            with pytest.raises(InvalidValue, match="native dialect"):
                await queue.predict(ROW)

    asyncio.run(run())


def test_a_reply_stream_closes_beside_a_call_that_has_the_connection(redis_server: PrivateRedis) -> None:
    settings = RedisSettings(port=redis_server.port, timeout_s=0.1)

    async def main() -> None:
        link = AsyncLink(RedisSettings(port=redis_server.port))
        await link.call(("PING",))
        blocked = asyncio.create_task(link.call(("BLPOP", "nothing", 0), timeout_s=60))
        await asyncio.sleep(0)

        async with asyncio.timeout(20):
            await AsyncReplies(settings, "stream", link).close()

        assert not blocked.done()
        await cancel([blocked])
        await link.close()

    asyncio.run(main())


def test_a_queue_of_another_event_loop_is_told_at_once(redis_server: PrivateRedis) -> None:
    queue = AsyncOutputQueue(port=redis_server.port)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        assert first.run(queue.query("none")) == "[]"
        with pytest.raises(ConnectionLost, match="belongs to another event loop: make one queue in each") as told:
            second.run(queue.query("none"))
        assert told.value.final
        first.run(queue.close())
        assert second.run(queue.query("none")) == "[]"
        second.run(queue.close())
