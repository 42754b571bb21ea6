"""`Calls`: records of concurrent requests through a real Redis, with and without a node."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import ConnectionLost, QueueFull, keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.values import encode_record
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.models.calls import Calls
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node

JOB = "frontend_calls"
NOBODYS = "nobodys_job"


@pytest.fixture(scope="module")
def node(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    model = str(MODELS / "affine.py")
    with running_node(tmp_path_factory.mktemp("node"), redis_server, modelPath=model, jobName=JOB) as node:
        yield node


@asynccontextmanager
async def calls_to(server: PrivateRedis) -> AsyncGenerator[Calls]:
    calls = Calls(RedisSettings.parse(server.url), Timers(1).of(0))
    try:
        yield calls
    finally:
        await calls.close()


def record(number: float) -> list[bytes]:
    return encode_record("unused", {"x": np.full(4, number, np.float32)})[2:]


def test_concurrent_calls_get_their_own_results(node: RunningNode, redis_server: PrivateRedis) -> None:
    async def scenario() -> None:
        async with calls_to(redis_server) as calls:
            admission = calls.open(JOB)
            batches = [[record(10 * call + row) for row in range(1 + call % 3)] for call in range(50)]

            found = await asyncio.gather(*(calls.run(admission, batch, 20) for batch in batches))

            for call, results in enumerate(found):
                firsts = [float(result.outputs["y"][0]) for result in results]
                assert firsts == [2 * (10 * call + row) + 1 for row in range(1 + call % 3)]

    asyncio.run(scenario())


def test_calls_that_come_together_leave_together(redis_server: PrivateRedis) -> None:
    async def scenario() -> None:
        async with calls_to(redis_server) as calls:
            admission = calls.open("together")
            await calls.run(admission, [record(0)], 1)  # connects
            with redis_server.client() as client:
                before = scripts_run(client)
                await asyncio.gather(*(calls.run(admission, [record(n)], 1) for n in range(40)))
                # Enqueued by one transaction or two (the first of them may leave alone), and taken back one by one.
                assert scripts_run(client) - before <= 42

    asyncio.run(scenario())


def test_a_window_gathers_until_it_is_over_or_full(redis_server: PrivateRedis) -> None:
    async def scenario() -> None:
        async with calls_to(redis_server) as calls:
            admission = calls.open("windowed", window_s=30, window_calls=3)
            waiting = [asyncio.create_task(calls.run(admission, [record(n)], 60)) for n in range(2)]
            with redis_server.client() as client:
                await until(lambda: client.exists(*client.keys(keys.frontend_reply_key("*")) or ["none"]))
                assert client.xlen("windowed") == 0

                waiting.append(asyncio.create_task(calls.run(admission, [record(2)], 60)))

                await until(lambda: client.xlen("windowed") == 3)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(scenario())


def test_what_nobody_answers_has_failed_by_its_deadline_and_is_taken_back(redis_server: PrivateRedis) -> None:
    async def scenario() -> None:
        async with calls_to(redis_server) as calls:
            results = await calls.run(calls.open(NOBODYS), [record(1), record(2)], 1)

            assert [result.error[0] for result in results if result.error] == ["DeadlineExceeded"] * 2
            with redis_server.client() as client:
                await until(lambda: client.xlen(NOBODYS) == 0)
                client.xgroup_create(NOBODYS, keys.GROUP, "0")
                await calls.run(calls.open(NOBODYS), [record(3)], 1)
                await until(lambda: client.xlen(NOBODYS) == 0)

    asyncio.run(scenario())


def test_a_call_that_is_given_up_takes_back_what_no_node_has_read(redis_server: PrivateRedis) -> None:
    job = "given_up"

    async def scenario() -> None:
        async with calls_to(redis_server) as calls:
            with redis_server.client() as client:
                client.xgroup_create(job, keys.GROUP, "0", mkstream=True)
                task = asyncio.create_task(calls.run(calls.open(job), [record(n) for n in range(3)], 60))
                await until(lambda: client.xlen(job) == 3)
                client.xreadgroup(keys.GROUP, "a-node", {job: ">"}, count=1)

                task.cancel()

                await until(lambda: client.xlen(job) == 1)
                assert client.xpending(job, keys.GROUP)["pending"] == 1

    asyncio.run(scenario())


def test_a_full_queue_refuses_at_once(redis_server: PrivateRedis) -> None:
    job = "full_job"

    async def scenario() -> None:
        async with calls_to(redis_server) as calls:
            with redis_server.client() as client:
                client.hset(keys.limits_key(job), "maxQueueLength", 1)
            with pytest.raises(QueueFull):
                await calls.run(calls.open(job), [record(1), record(2)], 60)

    asyncio.run(scenario())


def test_without_redis_a_call_fails_at_once_and_works_again_afterwards(own_redis: PrivateRedis) -> None:
    async def scenario() -> None:
        async with calls_to(own_redis) as calls:
            admission = calls.open("any")
            assert (await calls.run(admission, [record(1)], 1))[0].error
            waiting = asyncio.create_task(calls.run(admission, [record(1)], 60))
            with own_redis.client() as client:
                await until(lambda: client.xlen("any") > 0)

            await asyncio.to_thread(own_redis.stop)

            with pytest.raises(ConnectionLost):
                await waiting
            with pytest.raises(ConnectionLost):
                await calls.run(admission, [record(1)], 60)
            await asyncio.to_thread(own_redis.start)
            assert (await calls.run(admission, [record(1)], 1))[0].error

    asyncio.run(scenario())


def test_the_trace_of_a_request_goes_with_its_record(redis_server: PrivateRedis) -> None:
    trace = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async def scenario() -> None:
        async with calls_to(redis_server) as calls:
            task = asyncio.create_task(calls.run(calls.open("traced"), [record(1)], 60, trace))
            with redis_server.client() as client:
                await until(lambda: client.xlen("traced"))
                ((_, fields),) = client.xrange("traced")
            task.cancel()

            assert fields[keys.TRACEPARENT] == trace

    asyncio.run(scenario())


def scripts_run(client: Any) -> int:
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


async def until(condition: Callable[[], Any], timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)
