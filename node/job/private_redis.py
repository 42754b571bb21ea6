"""A Redis of a run's own, on a Unix socket in the run's directory, where nobody else finds it."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import redis

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.parent import die_with_parent
from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.job.redis_program import find_server

_START_S = 30.0
_STOP_S = 30.0


class PrivateRedis:
    """A redis-server that is killed, paused and started again.

    Args:
        directory: for its socket, its log and its append-only file.
        environment: of its process.
        append_only: whether what it holds outlives it.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str], *, append_only: bool = True) -> None:
        self.socket = directory / "redis.sock"
        self._directory = directory
        self._environment = environment
        self._append_only = append_only
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For `redisUrl`. A socket, not a port: a node that starts while this Redis is away must not start another on it."""
        return f"unix://{self.socket}"

    def settings(self, timeout_s: float = 2.0) -> RedisSettings:
        """For the clients of this run."""
        return RedisSettings(unix_path=str(self.socket), timeout_s=timeout_s)

    def start(self) -> None:
        """Start it, and wait until it has read its append-only file.

        Raises:
            RedisUnavailable: there is no redis-server, or it does not start.
        """
        # appendfsync no: written before Redis answers, and by nobody later. With everysec a slow disk delays the write itself
        # for up to 2 s (redis.conf), and a SIGKILL in that time loses what clients were told is there.
        options = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self._directory), "--save", ""]
        options += ["--appendonly", "yes" if self._append_only else "no", "--appendfsync", "no"]
        log = self._directory / "redis.log"
        self._process = spawn([str(find_server(os.environ).path), *options], log, self._environment)
        deadline_s = time.monotonic() + _START_S
        with self.settings(0.5).client() as client:
            while self._process.poll() is None and time.monotonic() < deadline_s:
                try:
                    client.ping()
                except redis.RedisError:
                    time.sleep(0.02)
                else:
                    return
        raise RedisUnavailable(f"the redis-server of this run does not start; its log is {log}")

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it, if it runs; with SIGTERM it says farewell to its clients, with SIGKILL not."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def suspend(self) -> None:
        """Stop it where it stands."""
        if self._process is not None:
            psutil.Process(self._process.pid).suspend()

    def resume(self) -> None:
        """Let it go on."""
        if self._process is not None:
            psutil.Process(self._process.pid).resume()


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that dies with this thread, in a session of its own: Ctrl-C is for the run, not for what it watches."""
    with log.open("ab") as stream:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
