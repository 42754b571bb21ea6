"""The last hour of a job in Redis, with the test as the node and several processes of frontends."""

import asyncio
import time
from typing import Any

import pytest
import structlog

from cluster_serving.client import keys
from cluster_serving.client.wire.load import Load
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.dashboard import history
from cluster_serving.frontend.dashboard.history import Recorder, decisions, points_since
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.models.models import Models
from support.heartbeats import described
from support.private_redis import PrivateRedis

POINTS = 360


def beat(server: PrivateRedis, job: str, **fields: Any) -> None:
    key = keys.node_key(job, "n")
    load = Load(records_s=5, p50_s=0.1, p99_s=0.2, busy=(0.5,))
    with server.client() as client:
        client.set(key, described(job=job, load=load, **fields).encode(), ex=60)
        client.zadd(keys.NODES, {key: time.time()})


def models_of(server: PrivateRedis) -> Models:
    return Models(FrontendConfig.model_validate({"redisUrl": server.url}), [], Timers(1).of(0))


def test_processes_keep_one_point_together_and_all_read_it(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = "history"
    beat(redis_server, job, figures={"answered": 9, "failed": 0})
    monkeypatch.setattr(history, "INTERVAL_S", 3)
    monkeypatch.setattr(history, "_EARLY_MS", -600_000)  # on a busy machine a process may offer its point much later

    async def scenario() -> tuple[list[dict[str, Any]], ...]:
        many = [models_of(redis_server) for _ in range(3)]
        for models in many:
            await models.start()
        tasks = [asyncio.create_task(Recorder(models).run()) for models in many]
        try:
            async with asyncio.timeout(30):
                while not (found := await points_since(many[0].find(job), 0)):
                    await asyncio.sleep(0.05)
                later = [await points_since(models.find(job), 0) for models in many]
                rest = await points_since(many[1].find(job), found[-1]["at_ms"])
            return found, *later, rest
        finally:
            for task, models in zip(tasks, many, strict=True):
                task.cancel()
                await models.close()

    first, *later, rest = asyncio.run(scenario())

    assert [(point["answered"], point["records_s"]) for point in first] == [(9, 5.0)]
    assert later == [first] * 3
    assert rest == []
    assert abs(first[0]["at_ms"] - 1000 * time.time()) < 60_000


def test_decisions_of_the_last_hour_are_read(redis_server: PrivateRedis) -> None:
    job = "scaled"
    beat(redis_server, job)
    with redis_server.client() as client:
        client.xadd(keys.decisions_key(job), {"words": "long ago"}, id="1-0")
        for words in ("3 nodes from 1: a load", "2 nodes from 3: none"):
            client.xadd(keys.decisions_key(job), {"words": words})

    async def scenario() -> list[dict[str, Any]]:
        models = models_of(redis_server)
        await models.start()
        try:
            return await decisions(models.find(job))
        finally:
            await models.close()

    found = asyncio.run(scenario())

    assert [each["words"] for each in found] == ["3 nodes from 1: a load", "2 nodes from 3: none"]
    assert abs(found[0]["at_ms"] - 1000 * time.time()) < 60_000


def test_history_has_an_hour_and_ends(redis_server: PrivateRedis) -> None:
    key = keys.history_key("long")
    with redis_server.client() as client:
        for number in range(POINTS + 40):
            client.eval(history.KEEP_POINT.text, 1, key, b'{"number":%d}' % number, 0, POINTS, 3_600_000)

        assert client.xlen(key) == POINTS
        assert client.xrevrange(key, count=1)[0][1] == {b"point": b'{"number":399}'}
        assert 3_500_000 < client.pttl(key) <= 3_600_000
        assert client.memory_usage(key) < 100_000


def test_a_refused_history_is_told_once_and_read_as_empty(own_redis: PrivateRedis) -> None:
    beat(own_redis, "guarded", figures={})
    with own_redis.client() as client:
        client.set(keys.history_key("guarded"), "of another kind")

    async def scenario() -> list[dict[str, Any]]:
        models = models_of(own_redis)
        await models.start()
        try:
            recorder = Recorder(models)
            await recorder.record()
            await recorder.record()
            return await points_since(models.find("guarded"), 0)
        finally:
            await models.close()

    with structlog.testing.capture_logs() as lines:
        assert asyncio.run(scenario()) == []
    assert [line["event"] for line in lines].count("the dashboard has no history: Redis refuses it") == 1
