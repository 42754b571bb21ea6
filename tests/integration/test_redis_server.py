"""The embedded Redis, with the real program on a free port."""

import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.node.job import redis_server
from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.job.redis_program import ServerProgram, find_server
from cluster_serving.node.job.redis_server import Listener
from support.broken_redis import damage, mend
from support.busy_redis import busy
from support.private_redis import PrivateRedis, free_port, rewrite_file
from support.wait import wait_until

pytestmark = pytest.mark.usefixtures("patient")


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


def test_port_of_a_busy_redis(own_redis: PrivateRedis) -> None:
    with busy(own_redis):
        assert redis_server.listener(own_redis.port) is Listener.REDIS


def test_port_of_a_redis_that_a_long_command_keeps_from_answering(
    own_redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_server, "_ANSWER_S", 0.2)
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        assert redis_server.listener(own_redis.port) is Listener.SILENT
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)


@pytest.mark.skipif(find_server(os.environ).version < (7,), reason="Redis 6.2 answers PING as such a replica too")
def test_port_of_a_replica_without_its_master(own_redis: PrivateRedis) -> None:
    with own_redis.client() as client:
        client.config_set("replica-serve-stale-data", "no")
        client.replicaof("127.0.0.1", free_port())
        with pytest.raises(redis.ResponseError):
            client.ping()

        assert redis_server.listener(own_redis.port) is Listener.REDIS


def test_port_of_another_redis(directory: Path, tmp_path: Path) -> None:
    port = free_port()
    redis_server.start(directory, port, 0)

    with pytest.raises(RedisUnavailable, match="in use by another process"):
        redis_server.start(tmp_path / "second", port, 0)
    assert redis_server.owned(tmp_path / "second") is None


def test_data_have_one_server(directory: Path) -> None:
    port = free_port()
    redis_server.start(directory, port, 0)

    with pytest.raises(RedisUnavailable, match=f"a Redis with the data in .* runs already, on port {port}"):
        redis_server.start(directory, free_port(), 0)

    assert redis_server.port_of(directory) == port


def test_last_log_line_says_why(directory: Path) -> None:
    program = directory.parent / "redis-server"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho first\necho cannot do it\nexit 1\n")
    program.chmod(0o700)

    with pytest.raises(RedisUnavailable, match="ended at once; its log ends with: cannot do it"):
        redis_server.start(directory, free_port(), 0, ServerProgram(program, "broken", ()))


def test_pid_of_another_process_is_not_owned(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "redis.pid").write_text(str(os.getpid()))

    assert redis_server.owned(directory) is None
    assert not redis_server.stop(directory)


def test_restart_keeps_data_and_settings(directory: Path) -> None:
    port, password = free_port(), "geheim"
    killed = redis_server.start(directory, port, 64 << 20, password=password)
    with RedisSettings(port=port, password=password).client() as client:
        client.xadd("s", {"a": "b"})
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: redis_server.owned(directory) is None, "the server has ended")
    assert redis_server.left_pid_file(directory)

    pid = redis_server.restart(directory)  # without the password: any answer shows that it is there

    assert redis_server.owned(directory) == pid
    with RedisSettings(port=port, password=password).client() as client:
        assert client.xlen("s") == 1
        assert client.config_get("maxmemory") == {"maxmemory": str(64 << 20)}


def test_restart_of_what_was_never_started(tmp_path: Path) -> None:
    with pytest.raises(RedisUnavailable, match="no Redis was started in"):
        redis_server.restart(tmp_path)


def test_data_of_one_server_are_read_by_another(directory: Path) -> None:
    """The server of the system and the package's, in both orders; the same one twice where the system has none."""
    port = free_port()
    here, package = find_server(os.environ), find_server({"PATH": ""})
    back = [] if here.version < (7,) else [here]  # Redis 6.2 would not see what the package's server writes

    for number, server in enumerate([here, package, *back]):
        redis_server.start(directory, port, 0, server)
        with RedisSettings(port=port).client() as client:
            assert client.xlen("s") == number
            client.xadd("s", {"a": "b"})
            rewrite_file(client)
        redis_server.stop(directory)


def test_broken_file_names_what_mends_it(directory: Path) -> None:
    port = free_port()
    redis_server.start(directory, port, 0)
    with RedisSettings(port=port).client() as client:
        client.set("first", "kept")
        client.set("second", "broken here")
        client.set("third", "so that this is not the end")
    redis_server.stop(directory)
    broken = damage(directory, b"broken here")

    with pytest.raises(RedisUnavailable) as told:
        redis_server.restart(directory)
    assert mend(str(told.value)) == broken
    redis_server.restart(directory)

    with RedisSettings(port=port).client() as client:
        assert client.get("first") == b"kept"
        assert client.get("second") is None


def test_home_of_a_port(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path))  # `directory` is that of a job in it
    port = free_port()
    redis_server.start(directory, port, 0)

    assert redis_server.home_of(port) == directory
    assert redis_server.home_of(free_port()) is None
    redis_server.stop(directory)
    assert redis_server.home_of(port) is None
