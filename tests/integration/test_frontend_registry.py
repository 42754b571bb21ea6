"""`Registry`: the jobs that a frontend sees, through a real Redis, with the test as the node."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.http.errors import NotReady, UnknownModel
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.models import registry as registry_module
from cluster_serving.frontend.models.models import Models
from cluster_serving.frontend.models.registry import Registry
from support.heartbeats import described
from support.private_redis import PrivateRedis, private_redis
from support.proxy import proxy
from support.wait import until

JOB = "registered"


def beat(server: PrivateRedis, job: str = JOB, **fields: Any) -> None:
    """Write a heartbeat that stays."""
    key = keys.node_key(job, "n")
    with server.client() as client:
        client.set(key, described(job=job, **fields).encode())
        client.zadd(keys.NODES, {key: 0})


def forget(server: PrivateRedis) -> None:
    with server.client() as client:
        client.flushall()


@asynccontextmanager
async def registry_of(port: int) -> AsyncGenerator[Registry]:
    registry = Registry(RedisSettings(port=port))
    await registry.start()
    try:
        yield registry
    finally:
        await registry.close()


async def next_look(registry: Registry) -> None:
    seen = registry.jobs
    await until(lambda: registry.jobs is not seen)


@pytest.fixture
def settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes have ten minutes to be heard again after an outage, so that a busy machine does not use them up."""
    monkeypatch.setattr(registry_module, "_SETTLING_S", 600.0)


@pytest.mark.usefixtures("settling")
@pytest.mark.parametrize("state", [None, "unready"])
def test_a_job_stays_ready_until_its_nodes_could_be_heard_after_an_outage(
    own_redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    async def scenario() -> None:
        beat(own_redis)
        async with registry_of(own_redis.port) as registry:
            await asyncio.to_thread(own_redis.stop)
            await until(lambda: not registry.reachable)
            assert registry.jobs[JOB].ready
            await asyncio.to_thread(own_redis.start)
            forget(own_redis)
            if state:
                beat(own_redis, state=state)
            await until(lambda: registry.reachable)
            assert registry.jobs[JOB].ready

            monkeypatch.setattr(registry, "_settled_s", 0.0)

            await until(lambda: JOB not in registry.jobs or not registry.jobs[JOB].ready)

    asyncio.run(scenario())


@pytest.mark.usefixtures("settling")
def test_a_job_stays_ready_after_an_outage_between_two_looks(redis_server: PrivateRedis) -> None:
    async def scenario() -> None:
        beat(redis_server)
        async with registry_of(redis_server.port) as registry:
            with redis_server.client() as client:
                client.client_kill_filter(_type="normal", skipme=True)
            beat(redis_server, state="unready")
            for _ in range(2):
                await next_look(registry)

            assert registry.jobs[JOB].ready

    asyncio.run(scenario())


def test_a_job_that_goes_without_an_outage_is_gone_at_once(redis_server: PrivateRedis) -> None:
    """Its callers are told to try again, and those of a job that never was are not."""

    async def scenario() -> None:
        beat(redis_server)
        models = Models(FrontendConfig.model_validate({"redisUrl": redis_server.url}), [], Timers(1).of(0))
        await models.start()
        try:
            assert models.find(JOB).job.ready
            with redis_server.client() as client:
                client.delete(keys.node_key(JOB, "n"))
            (registry,) = models.registries
            await until(lambda: JOB not in registry.jobs)

            with pytest.raises(NotReady, match=f"no node of the job {JOB} lives: start one"):
                models.find(JOB)
            with pytest.raises(UnknownModel):
                models.find("never_was")
        finally:
            await models.close()

    asyncio.run(scenario())


def test_a_master_that_no_node_writes_to_any_more_is_left(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """The address leads to another server, while the connection to the old one lives."""

    async def scenario(old: PrivateRedis, new: PrivateRedis) -> None:
        beat(old)
        with proxy(old.port) as address:
            async with registry_of(address.port) as registry:
                address.target = new.port
                beat(new, model="of the new master")

                forget(old)

                await until(lambda: registry.jobs[JOB].described.model == "of the new master")

    (tmp_path / "new").mkdir()
    with private_redis(tmp_path / "new") as new:
        asyncio.run(scenario(own_redis, new))


def test_a_job_with_a_colon_is_told_once_and_not_served(own_redis: PrivateRedis) -> None:
    async def scenario() -> None:
        async with registry_of(own_redis.port) as registry:
            beat(own_redis, "a")
            beat(own_redis, "a:b")
            await until(lambda: registry.jobs)
            assert list(registry.jobs) == ["a"]
            for _ in range(2):
                await next_look(registry)

    with structlog.testing.capture_logs() as logs:
        asyncio.run(scenario())

    (reason,) = [line["reason"] for line in logs if "heartbeat" in line["event"]]
    assert "'a:b', but must have no ':'" in reason
    assert "another jobName" in reason
