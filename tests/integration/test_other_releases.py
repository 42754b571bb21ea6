"""Clients beside nodes of releases that they do not understand, with the test as the node."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster_serving import __version__
from cluster_serving.client import (
    AsyncInputQueue,
    CodecError,
    InputQueue,
    Result,
    ResultTimeout,
    Unreadable,
    keys,
)
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.frontend.models.registry import Registry
from cluster_serving.node.job.releases import other_releases
from support.clients import ANSWER, ROW, Connect, in_background, replied
from support.heartbeats import described
from support.private_redis import PrivateRedis
from support.wait import wait_until

LONG_S = 60.0
"""Timeout that no call of these tests waits for."""


def former(uri: bytes, _result: Any = None) -> dict[Any, Any]:
    """The entry of a reply stream with one result, as nodes wrote it before there was a version on the wire."""
    return {b"uri": uri, **ANSWER, b"receipt": b"{}"}


def node(server: PrivateRedis, job: str, records: int, is_former: Callable[[int], bool]) -> Callable[[], None]:
    """Return a function that answers some records, each in the present form or the former one. Calls wait for the answers."""
    server.serve_once(job)

    def run() -> None:
        done = 0
        with server.client() as admin:
            while done < records:
                wait_until(lambda: admin.xlen(job), "a record waits")
                for entry_id, fields in admin.xrange(job):
                    form = former if is_former(done) else replied
                    admin.xadd(fields[keys.REPLY], form(fields[keys.URI], ANSWER), nomkstream=True)
                    admin.xdel(job, entry_id)
                    done += 1

    return run


def test_an_answer_that_cannot_be_read_ends_the_call(redis_server: PrivateRedis, connect: Connect) -> None:
    client = connect(port=redis_server.port, name="former")
    begun_s = time.monotonic()

    with (
        in_background(node(redis_server, "former", 1, lambda _: True)),
        pytest.raises(CodecError, match=rf"a node of another version .*'uri'.*version {__version__}"),
    ):
        client.predict(LONG_S)

    assert time.monotonic() - begun_s < LONG_S / 4


def test_of_many_calls_only_those_that_it_answers_fail(redis_server: PrivateRedis, connect: Connect) -> None:
    client = connect(port=redis_server.port, name="mixed")

    with in_background(node(redis_server, "mixed", 30, lambda number: number % 3 == 0)):
        answers = client.predict_many(30, LONG_S)

    assert [isinstance(answer, Unreadable) for answer in answers] == [number % 3 == 0 for number in range(30)]


def test_an_answer_without_uris_is_told_when_the_time_is_over(redis_server: PrivateRedis, connect: Connect) -> None:
    client = connect(port=redis_server.port, name="hidden")
    redis_server.serve_once("hidden")

    def answer() -> None:
        with redis_server.client() as admin:
            wait_until(lambda: admin.xlen("hidden"), "a record waits")
            ((entry_id, fields),) = admin.xrange("hidden")
            admin.xdel("hidden", entry_id)
            admin.xadd(fields[keys.REPLY], {"frames": "..."}, nomkstream=True)

    with in_background(answer), pytest.raises(ResultTimeout, match="a node of another version has answered"):
        client.predict(8)


def test_as_completed_goes_on(redis_server: PrivateRedis) -> None:
    records = [("a", {"t": ROW}), ("b", {"t": ROW})]

    async def scenario() -> list[Result]:
        async with AsyncInputQueue(port=redis_server.port, name="two") as queue:
            return [result async for result in queue.as_completed(records, LONG_S)]

    with (
        in_background(node(redis_server, "one", 2, lambda number: number == 0)),
        InputQueue(port=redis_server.port, name="one") as queue,
    ):
        found = list(queue.as_completed(records, LONG_S))
    with in_background(node(redis_server, "two", 2, lambda number: number == 0)):
        also = asyncio.run(scenario())

    for results in (found, also):
        assert {result.uri: result.error and result.error[0] for result in results} == {"a": "Unreadable", "b": None}


def beat(server: PrivateRedis, job: str, node: str, **fields: Any) -> None:
    with server.client() as admin:
        admin.set(keys.node_key(job, node), described(job=job, node=node, **fields).encode())
        admin.zadd(keys.NODES, {keys.node_key(job, node): time.time()})


def test_other_releases_of_a_job_are_found(own_redis: PrivateRedis) -> None:
    beat(own_redis, "j", "own", version=__version__, wire=keys.WIRE)
    beat(own_redis, "j", "old")
    beat(own_redis, "j", "new", version="0.2.0", wire=2)
    beat(own_redis, "k", "another", version="0.3.0", wire=3)
    with own_redis.client() as admin:
        admin.zadd(keys.NODES, {keys.node_key("j", "gone"): 0})
        admin.set(keys.node_key("j", "broken"), "{")
        admin.zadd(keys.NODES, {keys.node_key("j", "broken"): 0})

        found = {node.node: str(node) for node in other_releases(admin, "j")}

    assert found == {"old": "before 0.1.0 (wire 1)", "new": "0.2.0 (wire 2)"}


def test_a_frontend_knows_the_releases_beside_its_own(own_redis: PrivateRedis) -> None:
    beat(own_redis, "j", "own", version=__version__, wire=keys.WIRE)
    beat(own_redis, "k", "new", version="0.3.0", wire=3)

    async def scenario() -> None:
        registry = Registry(RedisSettings(port=own_redis.port))
        await registry.start()
        try:
            assert registry.releases == ["0.3.0 (wire 3)"]
            assert [name for name, job in registry.jobs.items() if job.ready] == ["j"]
        finally:
            await registry.close()

    asyncio.run(scenario())
