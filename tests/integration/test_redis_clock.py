"""Redis' clock as a lane's processes see it, on a machine whose system time is set."""

import time
from typing import Any

import pytest

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.node.reader.redis_clock import offset_ms
from cluster_serving.node.ring.ring import Ring
from cluster_serving.node.ring.slot import Geometry, now_us
from support.private_redis import PrivateRedis

HOUR_S = 3600
NEAR_MS = 1000  # a busy machine may hold up a call


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_step_of_the_system_time_moves_no_clock_of_a_lane(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    link, ring = Link(RedisSettings(port=redis_server.port)), Ring(Geometry(1, 1, 1024, 1))
    ring.clock_offset_ms = offset_ms(link)
    before_us = now_us()
    real: Any = time.time, time.time_ns

    monkeypatch.setattr(time, "time", lambda: real[0]() + step_s)
    monkeypatch.setattr(time, "time_ns", lambda: real[1]() + step_s * 10**9)

    assert abs(ring.redis_ms() - redis_ms(link)) < NEAR_MS
    assert 0 <= now_us() - before_us < 1000 * NEAR_MS
    assert abs(offset_ms(link) - ring.clock_offset_ms) < NEAR_MS
    link.close()
    ring.close()


def redis_ms(link: Link) -> float:
    seconds, microseconds = link.call("TIME")
    return 1000 * int(seconds) + int(microseconds) / 1000
