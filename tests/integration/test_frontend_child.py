"""One process of a frontend: where its threads are, and that it lives."""

import os
import signal
from collections.abc import Iterator

import pytest

from cluster_serving.client.servers.process.child import wait
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.server.child import Child
from cluster_serving.frontend.server.listeners import close, listeners_of
from support.private_redis import PrivateRedis
from support.wait import wait_until


@pytest.fixture
def timers() -> Iterator[Timers]:
    timers = Timers(1)
    yield timers
    os.close(timers.fd)


@pytest.fixture
def child(redis_server: PrivateRedis, timers: Timers) -> Iterator[Child]:
    config = FrontendConfig.model_validate({"port": 0, "interface": "127.0.0.1", "redisUrl": redis_server.url})
    listeners = listeners_of(config, {})
    child = Child(0, list(listeners.values()), config, timers.fd)
    yield child
    if child.reap() is None:
        child.signal(signal.SIGKILL)
    wait_until(child.reap, "it has ended")
    child.close()
    close(listeners)


def test_a_process_gives_signs_of_life_and_tells_its_stacks(
    child: Child, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster_serving.frontend.server.child._DUMP_S", 5.0)  # a busy machine may hold the process up
    wake_fd = os.eventfd(0)
    while child.booting:
        wait([child], wake_fd, 60)
        child.hear()
    os.close(wake_fd)
    assert child.ready is not None
    first_s = wait_until(lambda: timers.seen_s(0), "it gives a sign of life")
    wait_until(lambda: timers.seen_s(0) > first_s, "and another one")

    stacks = child.kill_hung()

    assert "most recent call first" in stacks
    assert "process.py" in stacks
    wait_until(child.reap, "it has ended")
    assert child.hung
