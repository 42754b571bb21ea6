"""A redis-server of the test's own."""

import os
import signal
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import redis

from cluster_serving.client import keys
from cluster_serving.node.job.redis_program import find_server
from support.wait import wait_until


def free_port() -> int:
    """A TCP port that nobody listens on, and that the kernel gives to no other test for a minute.

    A connection of it stays in TIME_WAIT for so long: a server may listen on the port, and nobody is given it by chance.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)):
            listener.accept()[0].close()
    return port


def slow_loading(key_us: int) -> tuple[str, ...]:
    """Options of a server that takes so long for each key that it loads, and answers LOADING at least every 2 MB of its file."""
    often = ("--loading-process-events-interval-bytes", "1024") if find_server(os.environ).version >= (7,) else ()
    return ("--key-load-delay", str(key_us), *often)


def hurry(server: "PrivateRedis") -> None:
    """Let a server that is loading slowly load the rest at full speed."""

    def is_told() -> bool:
        with server.client() as client:
            try:
                client.config_set("key-load-delay", "0")
            except redis.ConnectionError:
                return False
            except redis.ResponseError:
                pass  # Redis 6.2 takes no settings while it loads, and goes on slowly
        return True

    wait_until(is_told, "the server listens")


def fill(client: Any, count: int) -> list[str]:
    """Write so many keys of 16 KB that no server can compress, and let its file hold nothing else; their names."""
    values = {f"filler{n}": Random(n).randbytes(16 << 10) for n in range(count)}
    client.mset(values)
    rewrite_file(client)
    return list(values)


def rewrite_file(client: Any) -> None:
    """Let the append-only file hold what is there now, and not how it came there."""
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the file is rewritten")


class PrivateRedis:
    """A redis-server below a directory, append-only so that a restart keeps what it had."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.port = free_port()
        self.socket_path = directory / "redis.sock"
        self._directory = directory
        self._arguments = arguments
        self.start()

    @property
    def url(self) -> str:
        """For `redisUrl`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the server."""
        return self._process.pid

    def client(self) -> Any:
        """A redis-py client of it; untyped, because its replies are annotated as anything from str to None.

        By itself redis-py sends a command again that is not answered in 5 s, such as a long script on a busy machine.
        """
        return redis.Redis(port=self.port, socket_timeout=120)

    def serve_once(self, job: str) -> None:
        """Leave the limits of a job, as a node does that has served it: calls wait for the node's return."""
        with self.client() as client:
            client.hset(keys.limits_key(job), "maxQueueLength", 0)

    def start(self, *arguments: str) -> None:
        """Start it, this time with these arguments too, and wait until it answers."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory), "--save", ""]
        options += ["--unixsocket", str(self.socket_path), "--appendonly", "yes", *self._arguments, *arguments]
        binary = str(find_server(os.environ).path)
        self._process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: self._process.poll() is not None or self._answers(), "redis-server answers")
            assert self._process.poll() is None, "redis-server ended at once"
        except AssertionError:
            self.stop()
            raise

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it."""
        self._process.send_signal(number)
        self._process.wait(120)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.AuthenticationError:
            return True  # a password is wanted
        except (redis.ConnectionError, redis.TimeoutError):
            return False


@contextmanager
def private_redis(directory: Path, *arguments: str) -> Generator[PrivateRedis]:
    """A redis-server for a block."""
    server = PrivateRedis(directory, *arguments)
    try:
        yield server
    finally:
        server.stop()
