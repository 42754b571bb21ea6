"""Redis' clock as a lane's processes see it, on a machine whose system time is set, and the ids that it gives."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from cluster_serving.client import keys
from cluster_serving.client.threads.link import Link
from cluster_serving.node.reader.redis_clock import offset_ms, restart_ids
from cluster_serving.node.ring.ring import Ring
from cluster_serving.node.ring.slot import Geometry, now_us
from support.private_redis import PrivateRedis

JOB = "redis_clock"
LAST_ID = f"{(1 << 64) - 1}-{(1 << 64) - 1}"
HOUR_S = 3600
NEAR_MS = 60_000  # a busy machine may hold up a call


@pytest.fixture
def client(redis_server: PrivateRedis) -> Iterator[Any]:
    with redis_server.client() as client:
        client.xgroup_create(JOB, keys.GROUP, "0", mkstream=True)
        yield client
        client.delete(JOB)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_step_of_the_system_time_moves_no_clock_of_a_lane(
    link: Link, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    ring = Ring(Geometry(1, 1, 1024, 1))
    ring.clock_offset_ms = offset_ms(link)
    before_us = now_us()
    real: Any = time.time, time.time_ns

    monkeypatch.setattr(time, "time", lambda: real[0]() + step_s)
    monkeypatch.setattr(time, "time_ns", lambda: real[1]() + step_s * 10**9)

    assert abs(ring.redis_ms() - redis_ms(link)) < NEAR_MS
    assert 0 <= now_us() - before_us < 1000 * NEAR_MS
    assert abs(offset_ms(link) - ring.clock_offset_ms) < NEAR_MS
    ring.close()


def redis_ms(link: Link) -> float:
    seconds, microseconds = link.call("TIME")
    return 1000 * int(seconds) + int(microseconds) / 1000


def test_after_the_last_possible_id_the_ids_begin_anew(link: Link, client: Any) -> None:
    client.xadd(JOB, {"a": "b"}, id=LAST_ID)
    with pytest.raises(redis.ResponseError, match="exhausted"):
        client.xadd(JOB, {"a": "b"})
    client.xreadgroup(keys.GROUP, "node", {JOB: ">"})

    assert not restart_ids(link, JOB), "while an entry is there"
    client.xack(JOB, keys.GROUP, LAST_ID)
    client.xdel(JOB, LAST_ID)
    assert restart_ids(link, JOB)

    added = client.xadd(JOB, {"a": "b"})
    assert abs(int(added.partition(b"-")[0]) - redis_ms(link)) < NEAR_MS
    ((_, found),) = client.xreadgroup(keys.GROUP, "node", {JOB: ">"})
    assert [entry_id for entry_id, _ in found] == [added]


def test_ids_that_are_a_little_ahead_stay(link: Link, client: Any) -> None:
    """Ids are so where the clock of Redis was set back."""
    assert not restart_ids(link, JOB)
    ahead = client.xadd(JOB, {"a": "b"}, id=f"{redis_ms(link) + 1000 * HOUR_S:.0f}-0")
    client.xdel(JOB, ahead)

    assert not restart_ids(link, JOB)
    assert client.xadd(JOB, {"a": "b"}) > ahead
