"""The embedded Redis, with the real program on a free port."""

import os
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from cluster_serving.client.connection import RedisSettings
from cluster_serving.node import redis_server
from cluster_serving.node.redis_server import Listener, RedisUnavailable


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / 'a "job" b' / "redis"
    yield path
    redis_server.stop(path)


@pytest.fixture
def stranger() -> Iterator[int]:
    """A port where something that is no Redis says hello to everyone."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_starts_keeps_data_and_stops(directory: Path) -> None:
    port = free_port()
    assert redis_server.owned(directory) is None

    pid = redis_server.start(directory, port, 64 << 20)
    assert redis_server.owned(directory) == pid
    assert redis_server.listener(port) is Listener.REDIS
    assert os.getsid(pid) == pid
    with RedisSettings(port=port).client() as client:
        config = client.config_get("*")
        client.xadd("s", {"a": "b"})
    assert config["maxmemory"] == str(64 << 20)
    assert config["maxmemory-policy"] == "noeviction"
    assert config["appendonly"] == "yes"
    assert config["save"] == ""
    assert config["bind"] == "127.0.0.1"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700

    assert redis_server.stop(directory)
    assert not psutil.pid_exists(pid)
    assert not redis_server.stop(directory)
    assert redis_server.listener(port) is Listener.NOBODY

    redis_server.start(directory, port, 0)
    with RedisSettings(port=port).client() as client:
        assert client.xlen("s") == 1


def test_full_memory_refuses_instead_of_forgetting(directory: Path) -> None:
    port = free_port()
    redis_server.start(directory, port, 8 << 20)

    def fill(client: redis.Redis) -> None:
        for number in range(16):
            client.set(str(number), bytes(1 << 20))

    with RedisSettings(port=port).client() as client:
        with pytest.raises(redis.OutOfMemoryError):
            fill(client)
        assert client.exists("0")


def test_password_of_any_kind(directory: Path) -> None:
    port, password = free_port(), 'a "b" \\n # ü\n'

    redis_server.start(directory, port, 0, password=password)

    with RedisSettings(port=port).client() as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    with RedisSettings(port=port, password=password).client() as client:
        assert client.ping()
    assert stat.S_IMODE((directory / "redis.conf").stat().st_mode) == 0o600
    assert redis_server.owned(directory) is not None
    assert redis_server.holds_data(directory)
    assert redis_server.stop(directory)


def test_port_of_another_program(directory: Path, stranger: int) -> None:
    assert redis_server.listener(stranger) is Listener.OTHER
    with pytest.raises(RedisUnavailable, match=f"port {stranger} is in use by another process"):
        redis_server.start(directory, stranger, 0)


def test_port_of_another_redis(directory: Path, tmp_path: Path) -> None:
    port = free_port()
    redis_server.start(directory, port, 0)

    with pytest.raises(RedisUnavailable, match="in use by another process"):
        redis_server.start(tmp_path / "second", port, 0)
    assert redis_server.owned(tmp_path / "second") is None


def test_last_log_line_says_why(directory: Path) -> None:
    program = directory.parent / "redis-server"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho first\necho cannot do it\nexit 1\n")
    program.chmod(0o700)

    with pytest.raises(RedisUnavailable, match="ended at once; its log ends with: cannot do it"):
        redis_server.start(directory, free_port(), 0, program)


def test_pid_of_another_process_is_not_owned(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "redis.pid").write_text(str(os.getpid()))

    assert redis_server.owned(directory) is None
    assert not redis_server.stop(directory)


def test_find_server_prefers_redis_home(tmp_path: Path) -> None:
    program = tmp_path / "src" / "redis-server"
    program.parent.mkdir()
    program.touch(0o700)
    environ = {"REDIS_HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    assert redis_server.find_server(environ) == program
    assert redis_server.redis_home_problem(environ) is None
    program.unlink()
    assert redis_server.find_server(environ).name == "redis-server"
    assert "REDIS_HOME is" in str(redis_server.redis_home_problem(environ))


def test_no_server_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType]

    with pytest.raises(RedisUnavailable, match="apt install redis-server"):
        redis_server.find_server({"PATH": str(tmp_path)})


@pytest.mark.parametrize("version", ["6.2.14", "7.0.15", "8.0.0", "255.255.255", "", "unstable"])
def test_version_is_new_enough(version: str) -> None:
    redis_server.check_version({"redis_version": version})


@pytest.mark.parametrize("version", ["5.0.7", "6.0.20"])
def test_version_is_too_old(version: str) -> None:
    with pytest.raises(
        RedisUnavailable, match=f"this Redis is version {version}, but Cluster Serving needs 6.2 or newer"
    ):
        redis_server.check_version({"redis_version": version})
