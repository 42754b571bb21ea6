"""`Calls`: records of concurrent requests through a real Redis, with and without a node."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import ConnectionLost, QueueFull, keys
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.values import encode_record
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.models.calls import Calls
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import until

JOB = "frontend_calls"
NOBODYS = "nobodys_job"


@pytest.fixture(scope="module")
def node(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    model = str(MODELS / "affine.py")
    with running_node(tmp_path_factory.mktemp("node"), redis_server, modelPath=model, jobName=JOB) as node:
        yield node


@asynccontextmanager
async def calls_to(server: PrivateRedis, job: str, window_s: float = 0, window_calls: int = 1) -> AsyncGenerator[Calls]:
    settings = RedisSettings.parse(server.url)
    sending = AsyncLink(settings)
    calls = Calls(settings, sending, job, Timers(1).of(0), window_s, window_calls)
    try:
        yield calls
    finally:
        await calls.close()
        await sending.close()


def record(number: float) -> list[bytes]:
    return encode_record("unused", {"x": np.full(4, number, np.float32)})[2:]


def test_concurrent_calls_get_their_own_results(node: RunningNode, redis_server: PrivateRedis) -> None:
    async def scenario() -> None:
        async with calls_to(redis_server, JOB) as calls:
            batches = [[record(10 * call + row) for row in range(1 + call % 3)] for call in range(50)]

            found = await asyncio.gather(*(calls.run(batch, 20) for batch in batches))

            for call, results in enumerate(found):
                firsts = [float(result.outputs["y"][0]) for result in results]
                assert firsts == [2 * (10 * call + row) + 1 for row in range(1 + call % 3)]

    asyncio.run(scenario())


def test_calls_that_come_together_leave_together(redis_server: PrivateRedis) -> None:
    async def scenario() -> None:
        async with calls_to(redis_server, "together") as calls:
            await calls.run([record(0)], 5)  # connects
            with redis_server.client() as client:
                await until(lambda: client.xlen("together") == 0)  # taken back
                before = scripts_run(client)
                await asyncio.gather(*(calls.run([record(n)], 5) for n in range(40)))
                # Enqueued by one transaction or two (the first of them may leave alone), and taken back one by one.
                assert scripts_run(client) - before <= 42

    asyncio.run(scenario())


def test_a_window_gathers_until_it_is_over_or_full(redis_server: PrivateRedis) -> None:
    async def scenario() -> None:
        async with calls_to(redis_server, "windowed", window_s=30, window_calls=3) as calls:
            waiting = [asyncio.create_task(calls.run([record(n)], 60)) for n in range(2)]
            with redis_server.client() as client:
                await until(lambda: client.exists(*client.keys(keys.reply_key("windowed", "*")) or ["none"]))
                assert client.xlen("windowed") == 0

                waiting.append(asyncio.create_task(calls.run([record(2)], 60)))

                await until(lambda: client.xlen("windowed") == 3)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(scenario())


def test_what_nobody_answers_has_failed_by_its_deadline_and_is_taken_back(redis_server: PrivateRedis) -> None:
    async def scenario() -> None:
        async with calls_to(redis_server, NOBODYS) as calls:
            results = await calls.run([record(1), record(2)], 5)

            assert [result.error[0] for result in results if result.error] == ["DeadlineExceeded"] * 2
            with redis_server.client() as client:
                await until(lambda: client.xlen(NOBODYS) == 0)
                client.xgroup_create(NOBODYS, keys.GROUP, "0", mkstream=True)
                await calls.run([record(3)], 5)
                await until(lambda: client.xlen(NOBODYS) == 0)

    asyncio.run(scenario())


def test_a_call_that_is_given_up_takes_back_what_no_node_has_read(redis_server: PrivateRedis) -> None:
    job = "given_up"

    async def scenario() -> None:
        async with calls_to(redis_server, job) as calls:
            with redis_server.client() as client:
                client.xgroup_create(job, keys.GROUP, "0", mkstream=True)
                task = asyncio.create_task(calls.run([record(n) for n in range(3)], 60))
                await until(lambda: client.xlen(job) == 3)
                client.xreadgroup(keys.GROUP, "a-node", {job: ">"}, count=1)

                task.cancel()

                await until(lambda: client.xlen(job) == 1)
                assert client.xpending(job, keys.GROUP)["pending"] == 1

    asyncio.run(scenario())


def test_a_full_queue_refuses_at_once(redis_server: PrivateRedis) -> None:
    job = "full_job"

    async def scenario() -> None:
        async with calls_to(redis_server, job) as calls:
            with redis_server.client() as client:
                client.hset(keys.limits_key(job), "maxQueueLength", 1)
            with pytest.raises(QueueFull):
                await calls.run([record(1), record(2)], 60)

    asyncio.run(scenario())


def test_without_redis_a_call_fails_at_once_and_works_again_afterwards(own_redis: PrivateRedis) -> None:
    async def scenario() -> None:
        async with calls_to(own_redis, "any") as calls:
            assert (await calls.run([record(1)], 5))[0].error
            waiting = asyncio.create_task(calls.run([record(1)], 60))
            with own_redis.client() as client:
                await until(lambda: client.xlen("any") > 0)

            await asyncio.to_thread(own_redis.stop)

            with pytest.raises(ConnectionLost):
                await waiting
            with pytest.raises(ConnectionLost):
                await calls.run([record(1)], 60)
            await asyncio.to_thread(own_redis.start)
            assert (await calls.run([record(1)], 5))[0].error

    asyncio.run(scenario())


def test_the_trace_of_a_request_goes_with_its_record(redis_server: PrivateRedis) -> None:
    trace = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async def scenario() -> None:
        async with calls_to(redis_server, "traced") as calls:
            task = asyncio.create_task(calls.run([record(1)], 60, trace))
            with redis_server.client() as client:
                await until(lambda: client.xlen("traced"))
                ((_, fields),) = client.xrange("traced")
            task.cancel()

            assert fields[keys.TRACEPARENT] == trace

    asyncio.run(scenario())


def test_no_key_tells_the_uris_under_way(redis_server: PrivateRedis) -> None:
    """`SCAN` shows every key to every user, and a user who knows a uri of a call could have a node answer the call."""
    job = "guessed"

    async def scenario() -> None:
        async with calls_to(redis_server, job) as first, calls_to(redis_server, job) as second:
            tasks = [asyncio.create_task(calls.run([record(1)] * 2, 60)) for calls in (first, second)]
            with redis_server.client() as client:
                await until(lambda: client.xlen(job) == 4)
                uris = [fields[keys.URI].decode() for _, fields in client.xrange(job)]
                names = b" ".join(client.keys("*")).decode()
            for task in tasks:
                task.cancel()

            secrets = {uri.rpartition("-")[0] for uri in uris}
            assert len(secrets) == 2
            assert all(len(bytes.fromhex(secret)) == 8 and secret not in names for secret in secrets)
            assert names.count(keys.reply_prefix(job)) == 2

    asyncio.run(scenario())


def scripts_run(client: Any) -> int:
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))
