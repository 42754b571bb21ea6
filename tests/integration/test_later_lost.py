"""A call that is answered later, and a Redis that does not keep it: after a failover, or without memory."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost, QueueFull
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.models.calls import Calls
from cluster_serving.frontend.models.later.later import Later
from cluster_serving.frontend.models.visit import Visit
from support.private_redis import PrivateRedis

JOB, OWNER = "later_lost", "an-owner"


class Failover:
    """Takes records as a new master does, which has no copy of the hash."""

    def __init__(self, server: PrivateRedis) -> None:
        self._server = server

    async def enqueue(self, _uris: object, _records: object, answers: str, *_: object) -> list[bytes]:
        """Take the records of a call."""
        with self._server.client() as client:
            client.delete(answers)
        return [b"1-1"]

    def uris(self, *_: object) -> None:
        """Name no record."""


async def accept(server: PrivateRedis) -> None:
    later = Later(RedisSettings(port=server.port), FrontendConfig())
    try:
        visit = cast(Visit, SimpleNamespace(timeout_s=5.0, callback="", traceparent=""))
        await later.accept(cast(Calls, Failover(server)), JOB, [cast(Any, {})], b"v1", OWNER, visit)
    finally:
        await later.close()


def test_a_call_whose_hash_is_lost_is_not_accepted(redis_server: PrivateRedis) -> None:
    with pytest.raises(ConnectionLost, match="has lost the call after a failover: send it again"):
        asyncio.run(accept(redis_server))

    with redis_server.client() as client:
        assert client.zcard(keys.calls_key(OWNER)) == 0
        assert not list(client.scan_iter(f"*{JOB}*"))


def test_a_call_that_redis_has_no_memory_for_finds_the_queue_full(own_redis: PrivateRedis) -> None:
    with own_redis.client() as client:
        client.config_set("maxmemory", "1")

    with pytest.raises(QueueFull, match=r"Redis queue is full, .* OOM command not allowed"):
        asyncio.run(accept(own_redis))


def test_a_call_that_redis_keeps_in_part_is_forgotten(own_redis: PrivateRedis) -> None:
    with own_redis.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-hset")

        with pytest.raises(RedisRefused, match="hset"):
            asyncio.run(accept(own_redis))

        assert client.zcard(keys.calls_key(OWNER)) == 0
