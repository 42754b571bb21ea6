"""Private Redis of a run, where no other program looks for one: a Unix socket in the run's directory, or a port with a password."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import redis

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.parent import die_with_parent
from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.job.redis_program import find_server

_START_S = 30.0
_STOP_S = 30.0

# A Unix socket's path has at most 107 bytes (unix(7)).
_LONGEST_PATH = 107


class PrivateRedis:
    """A redis-server for a run to kill, pause and start again.

    Args:
        directory: place of the log, the append-only file, and the socket, unless the socket's path would be too long there.
        environment: environment of the server process.
        append_only: keep the data when the server ends.
        port: port of this machine to listen on too, for clients that are to use TCP as in service. It has a password, because
            programs of other users reach it. 0: none.
    """

    def __init__(
        self, directory: Path, environment: Mapping[str, str], *, append_only: bool = True, port: int = 0
    ) -> None:
        self.socket = directory / "redis.sock"
        if len(os.fsencode(self.socket)) > _LONGEST_PATH:
            elsewhere = tempfile.mkdtemp(prefix="cluster-serving-", dir="/tmp")
            weakref.finalize(self, shutil.rmtree, elsewhere, ignore_errors=True)
            self.socket = Path(elsewhere, "redis.sock")
        self._directory = directory
        self._environment = environment
        self._append_only = append_only
        self._port = port
        self._password = secrets.token_hex(16) if port else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Value for `redisUrl`. With a port, a node could start a second Redis while this Redis is away."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0" if self._port else f"unix://{self.socket}"

    def settings(self, timeout_s: float = 2.0) -> RedisSettings:
        """Return the connection settings for the clients of this run."""
        return RedisSettings(unix_path=str(self.socket), password=self._password, timeout_s=timeout_s)

    def start(self) -> None:
        """Start the server, and wait until the append-only file has been read.

        Raises:
            RedisUnavailable: there is no redis-server, or the server does not start.
        """
        # appendfsync no: Redis writes before the answer, and never later. With everysec a slow disk delays the write itself for
        # up to 2 s (redis.conf), and a SIGKILL in those 2 s loses data that clients were told is stored.
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket)]
        options += ["--dir", str(self._directory), "--save", ""]
        options += ["--appendonly", "yes" if self._append_only else "no", "--appendfsync", "no"]
        options += ["--requirepass", self._password] if self._password else []
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
        """End a running server. SIGTERM lets the server close the connections of clients in order, SIGKILL does not."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def suspend(self) -> None:
        """Pause the server."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a paused server."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that dies with this thread. The process has its own session, so Ctrl-C reaches only the run."""
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
