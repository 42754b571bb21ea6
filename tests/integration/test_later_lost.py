"""A call that is answered later, and a Redis that does not keep it: after a failover, or without memory."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost, QueueFull
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.frontend.config.servables import read_servables
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.models.calls import Calls
from cluster_serving.frontend.models.later import kept
from cluster_serving.frontend.models.later.kept import CallId
from cluster_serving.frontend.models.later.later import Later
from cluster_serving.frontend.models.models import Models, owner_of
from cluster_serving.frontend.models.visit import Visit
from support.private_redis import PrivateRedis, free_port

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


def test_a_result_is_found_while_another_redis_is_away(redis_server: PrivateRedis, tmp_path: Path) -> None:
    config = FrontendConfig.model_validate({"redisUrl": f"localhost:{free_port()}"})
    document = {"modelMetaDataList": [{"modelName": "m", "redisHost": "localhost", "redisPort": redis_server.port}]}

    async def scenario(path: Path) -> None:
        models = Models(config, read_servables(str(path), config.redis_settings()), Timers(1).of(0))
        call = CallId.new(JOB)
        facts = {kept.FORM: b"v1", kept.OWNER: owner_of("key"), kept.RECORDS: 1, kept.EXPIRES: 0, keys.LEFT: 1}
        try:
            with redis_server.client() as client:
                client.hset(call.key, mapping=facts)
            _, found = await models.kept(str(call), "key")
            assert found.call == call
            with pytest.raises(ConnectionLost):
                await models.kept(str(CallId.new(JOB)), "key")
        finally:
            await models.close()
            with redis_server.client() as client:
                client.delete(call.key)

    path = tmp_path / "servables-conf.yaml"
    path.write_text(yaml.safe_dump(document))
    asyncio.run(scenario(path))
