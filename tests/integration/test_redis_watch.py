"""An embedded Redis that ends while it is watched, with the real program."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.node.job import redis_server
from cluster_serving.node.job.redis_watch import forget, watched, watching
from support.broken_redis import damage, mend
from support.private_redis import free_port
from support.wait import wait_until


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path))
    path = tmp_path / "job" / "redis"
    yield path
    redis_server.stop(path)


@pytest.fixture
def port(directory: Path) -> int:
    port = free_port()
    redis_server.start(directory, port, 0)
    return port


def end(directory: Path, number: int = signal.SIGKILL) -> None:
    pid = redis_server.owned(directory)
    assert pid is not None
    os.kill(pid, number)


def await_restart(directory: Path, number: int) -> None:
    wait_until(lambda: watched(directory).restarts == number, "it was started again")
    assert watched(directory).problem == ""
    assert redis_server.owned(directory) is not None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_is_started_again_with_its_data(directory: Path, port: int, number: int) -> None:
    with structlog.testing.capture_logs() as told, watching(directory, port, None):
        for restarts in (1, 2):
            with RedisSettings(port=port).client() as client:
                client.xadd("s", {"a": "b"})
            end(directory, number)
            await_restart(directory, restarts)

    with RedisSettings(port=port).client() as client:
        assert client.xlen("s") == 2
    why = {line["why"] for line in told if "why" in line}
    assert why == {"killed; out of memory?" if number == signal.SIGKILL else "told to end"}
    forget(directory)
    assert watched(directory).restarts == 0


def test_of_two_nodes_one_starts_it(directory: Path, port: int) -> None:
    with watching(directory, port, None), watching(directory, port, None):
        for number in (1, 2, 3):
            end(directory)
            await_restart(directory, number)

    assert (directory / "redis.log").read_text().count("Ready to accept connections") == 1 + 3


def test_a_watch_that_was_stopped_starts_nothing(directory: Path, port: int) -> None:
    with structlog.testing.capture_logs() as told:
        with watching(directory, port, None):
            pass
        end(directory)
        wait_until(lambda: redis_server.owned(directory) is None, "it has ended")
        with watching(directory, port, None):  # of another node
            await_restart(directory, 1)
            wait_until(lambda: told, "the restart is logged")

    assert [line["event"] for line in told] == ["the embedded Redis is back"]


def noted_ns(directory: Path) -> int:
    """Return the time in ns at which the watch last noted something."""
    return (directory / "watch.json").stat().st_mtime_ns


def test_what_hinders_it_is_told_once_until_it_is_mended(directory: Path, port: int) -> None:
    with RedisSettings(port=port).client() as client:
        client.config_set("appendfsync", "always")  # with everysec, a busy disk holds back the file
        client.set("first", "kept")
        client.set("second", "broken here")
        client.set("third", "so that this is not the end")
    with structlog.testing.capture_logs() as told, watching(directory, port, None):
        damage(directory, b"broken here")
        end(directory)
        wait_until(lambda: "is damaged" in watched(directory).problem, "it cannot be started")
        first_ns = noted_ns(directory)
        wait_until(lambda: noted_ns(directory) > first_ns, "a further attempt fails too")
        mend(watched(directory).problem)
        await_restart(directory, 1)

    assert len([line for line in told if "cannot be started again" in line["event"]]) == 1
    with RedisSettings(port=port).client() as client:
        assert client.get("first") == b"kept"
