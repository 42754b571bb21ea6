"""The slowest records of a job in Redis, with the test as the writer."""

import asyncio
from typing import Any

import pytest

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.receipt import BatchReceipt
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.dashboard.slow_records import slow_records
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.models.models import Models
from cluster_serving.node.ring.slot import Row
from cluster_serving.node.writer import slowest
from cluster_serving.node.writer.slowest import Slowest
from support.heartbeats import described
from support.private_redis import PrivateRedis

NOW_MS = 1_763_657_000_000
HOUR_MS = 3_600_000
BATCH = BatchReceipt("node-1", "sha256:1", 0, 3, 2, NOW_MS - 40, 5.0, 20.0, 1.0)


def row(took_ms: int, at_ms: int = NOW_MS) -> Row:
    return Row(b"%d-0" % (at_ms - took_ms), b"took-%d" % took_ms, b"", 0, 0, read_us=1000 * (at_ms - took_ms + 1))


def read(server: PrivateRedis, job: str) -> list[dict[str, Any]]:
    """Return the slow records of a job, as a frontend tells them."""
    with server.client() as client:
        key = keys.node_key(job, "n")
        client.set(key, described(job=job).encode(), ex=60)
        client.zadd(keys.NODES, {key: NOW_MS})

    async def scenario() -> list[dict[str, Any]]:
        models = Models(FrontendConfig.model_validate({"redisUrl": server.url}), [], Timers(1).of(0))
        await models.start()
        try:
            return await slow_records(models.find(job))
        finally:
            await models.close()

    return asyncio.run(scenario())


def test_the_slowest_of_each_interval_is_kept_for_an_hour(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link(RedisSettings.parse(redis_server.url))
    kept = Slowest(link, "slowest")
    monkeypatch.setattr(slowest, "_INTERVAL_S", 0)
    monkeypatch.setattr(kept, "_due_s", float("inf"))
    kept.offer([row(70), row(90), row(80)], BATCH, 0, NOW_MS)
    kept.offer([row(60)], BATCH, 0, NOW_MS)
    assert read(redis_server, "slowest") == []

    monkeypatch.setattr(kept, "_due_s", 0)
    kept.offer([row(50)], BATCH, 0, NOW_MS)
    kept.offer([row(500)], BATCH, 0, NOW_MS)
    slow, fast = read(redis_server, "slowest")

    assert (slow["uri"], slow["took_ms"], fast["uri"]) == ("took-500", 500, "took-90")
    assert fast["stages"] == {"stream": 1, "fill": 49, "wait": 5, "run": 20, "publish": 1, "write": 14}
    assert (slow["node"], slow["worker"], slow["batch"]) == ("node-1", 3, 2)

    for took_ms in range(100, 130):
        kept.offer([row(took_ms)], BATCH, 0, NOW_MS)
    assert [each["took_ms"] for each in read(redis_server, "slowest")] == [500, *range(129, 120, -1)]
    later_ms = NOW_MS + HOUR_MS + 1
    kept.offer([row(10, later_ms)], BATCH, 0, later_ms)
    assert [each["uri"] for each in read(redis_server, "slowest")] == ["took-10"]
    link.close()


def test_an_id_that_a_caller_has_chosen_is_not_slow(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link(RedisSettings.parse(redis_server.url))
    monkeypatch.setattr(slowest, "_INTERVAL_S", 0)
    kept = Slowest(link, "chosen_ids")
    chosen = Row(b"1-1", b"chosen", b"", 0, 0, read_us=1000 * NOW_MS)

    kept.offer([chosen], BATCH, 0, NOW_MS)
    kept.offer([chosen, row(70)], BATCH, 0, NOW_MS)

    assert [each["uri"] for each in read(redis_server, "chosen_ids")] == ["took-70"]
    link.close()


def test_a_refusal_of_redis_disturbs_no_writer(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(RedisSettings.parse(redis_server.url))
    monkeypatch.setattr(slowest, "_INTERVAL_S", 0)
    with redis_server.client() as client:
        client.set(keys.slow_key("refused"), "of another kind")

    Slowest(link, "refused").offer([row(70)], BATCH, 0, NOW_MS)

    assert read(redis_server, "refused") == []
    link.close()
