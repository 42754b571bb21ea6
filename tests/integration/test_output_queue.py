"""Results off the queue: nothing is lost for a reader that stops early, fails, or is interrupted."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from cluster_serving.client import AsyncOutputQueue, ConnectionLost, InvalidValue, OutputQueue, keys
from cluster_serving.client.aio import output_queue as aio
from cluster_serving.client.threads import output_queue as threads
from support.private_redis import PrivateRedis
from support.proxy import proxy

MANY = 1500
"""More than a page."""


@pytest.fixture
def put(redis_server: PrivateRedis, request: pytest.FixtureRequest) -> Iterator[Callable[[str], set[str]]]:
    """Puts results of a job into Redis."""
    with redis_server.client() as client:

        def put(job: str) -> set[str]:
            uris = {f"u{number}" for number in range(MANY)}
            with client.pipeline(transaction=False) as together:
                for uri in uris:
                    together.hset(keys.result_prefix(job) + uri, "value", "[1]")
                together.execute()
            return uris

        yield put


def test_a_loop_that_ends_early_leaves_the_rest(redis_server: PrivateRedis, put: Callable[[str], set[str]]) -> None:
    uris, seen = put("stopped"), set[str]()
    with OutputQueue(port=redis_server.port, name="stopped") as output:
        for result in output.results():
            seen.add(result.uri)
            break
        seen |= {result.uri for _, result in zip(range(4), output.results(), strict=False)}
    with OutputQueue(port=redis_server.port, name="stopped") as output:
        rest = output.dequeue()

    assert len(seen) == 5
    assert rest.keys() == uris - seen


def test_an_asyncio_loop_that_ends_early_leaves_the_rest(
    redis_server: PrivateRedis, put: Callable[[str], set[str]]
) -> None:
    uris, seen = put("stopped_aio"), set[str]()

    async def run() -> dict[str, Any]:
        async with AsyncOutputQueue(port=redis_server.port, name="stopped_aio") as output:
            async for result in output.results():
                seen.add(result.uri)
                if len(seen) == 5:
                    break
            return await output.dequeue()

    rest = asyncio.run(run())

    assert len(seen) == 5
    assert rest.keys() == uris - seen


def test_two_readers_share_the_results(redis_server: PrivateRedis, put: Callable[[str], set[str]]) -> None:
    uris = put("shared")
    with (
        OutputQueue(port=redis_server.port, name="shared") as one,
        OutputQueue(port=redis_server.port, name="shared") as other,
    ):
        results = one.results(timeout=0.1)
        seen = [next(results).uri for _ in range(5)]
        taken = other.dequeue()
        seen += [result.uri for result in results]

    assert taken.keys() == uris - {*seen}
    assert len(seen) == 5


class _Interrupted(BaseException):
    """Ctrl-C, for example."""


def interrupt_once(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """Let the first conversion of a result be interrupted."""

    def interrupt(_: Any) -> None:
        monkeypatch.undo()
        raise _Interrupted

    monkeypatch.setattr(module, "plain_or_failed", interrupt)


def test_dequeue_that_is_interrupted_returns_the_results_next_time(
    redis_server: PrivateRedis, put: Callable[[str], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    uris = put("interrupted")
    with OutputQueue(port=redis_server.port, name="interrupted") as output:
        interrupt_once(monkeypatch, threads)
        with pytest.raises(_Interrupted):
            output.dequeue()

        assert output.dequeue().keys() == uris
        assert output.dequeue() == {}


def test_asyncio_dequeue_that_is_interrupted_returns_the_results_next_time(
    redis_server: PrivateRedis, put: Callable[[str], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    uris = put("interrupted_aio")

    async def run() -> None:
        async with AsyncOutputQueue(port=redis_server.port, name="interrupted_aio") as output:
            interrupt_once(monkeypatch, aio)
            interrupted = asyncio.create_task(output.dequeue())
            with pytest.raises(_Interrupted):
                await interrupted

            assert (await output.dequeue()).keys() == uris
            assert await output.dequeue() == {}

    asyncio.run(run())


def test_a_uri_that_is_no_text_is_an_invalid_value(redis_server: PrivateRedis) -> None:
    async def query() -> None:
        async with AsyncOutputQueue(port=redis_server.port) as output:
            await output.query("\ud800")

    with OutputQueue(port=redis_server.port) as output, pytest.raises(InvalidValue, match="valid Unicode"):
        output.query("\ud800")
    with pytest.raises(InvalidValue, match="valid Unicode"):
        asyncio.run(query())


def test_results_without_a_wait_are_those_that_are_there(
    redis_server: PrivateRedis, put: Callable[[str], set[str]]
) -> None:
    async def by_asyncio() -> set[str]:
        async with AsyncOutputQueue(port=redis_server.port, name="at_once") as output:
            return {result.uri async for result in output.results(timeout=0)}

    uris = put("at_once")
    with OutputQueue(port=redis_server.port, name="at_once") as output:
        assert {result.uri for result in output.results(timeout=0)} == uris
        assert [*output.results(timeout=0)] == []
    put("at_once")
    assert asyncio.run(by_asyncio()) == uris
    assert asyncio.run(by_asyncio()) == set()


Reader = Callable[[int], dict[str, Any]]


def dequeue(port: int) -> dict[str, Any]:
    with OutputQueue(port=port, name="cut") as output:
        return output.dequeue()


def dequeue_by_asyncio(port: int) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async with AsyncOutputQueue(port=port, name="cut") as output:
            return await output.dequeue()

    return asyncio.run(run())


def results(port: int) -> dict[str, Any]:
    with OutputQueue(port=port, name="cut") as output:
        return {result.uri: result.value for result in output.results(timeout=0.1)}


def results_by_asyncio(port: int) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async with AsyncOutputQueue(port=port, name="cut") as output:
            return {result.uri: result.value async for result in output.results(timeout=0.1)}

    return asyncio.run(run())


def query_and_delete(port: int) -> dict[str, Any]:
    with OutputQueue(port=port, name="cut") as output:
        return {"u0": output.query_and_delete("u0")}


@pytest.mark.parametrize("read", [dequeue, dequeue_by_asyncio, results, results_by_asyncio, query_and_delete])
@pytest.mark.parametrize("told", ["values", "deletion"])
def test_a_connection_that_breaks_loses_no_result(read: Reader, told: str, redis_server: PrivateRedis) -> None:
    with redis_server.client() as client, proxy(redis_server.port) as address:
        client.hset(keys.result_prefix("cut") + "u0", mapping={"value": "[1]", "receipt": "{}"})
        read(redis_server.port)  # Redis knows the script
        client.hset(keys.result_prefix("cut") + "u0", mapping={"value": "[1]", "receipt": "{}"})
        cut = address.cut_reply(b"[1]" if told == "values" else b":1", 0)
        seen: dict[str, Any] = {}
        with suppress(ConnectionLost):
            seen = read(address.port)

        assert cut.happened.is_set()
        assert (seen or read(address.port)) == {"u0": [1]}
