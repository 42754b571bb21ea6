"""One process of a frontend, seen from the server: start, parameters, reason of the end."""

import os
import subprocess
import sys
import time
from typing import Any

import msgspec
from pydantic import SecretStr

from cluster_serving.client.servers.process.exit_codes import why_ended
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.server.listeners import Listener


class Spec(msgspec.Struct, frozen=True):
    """Parameters of a process. `http` and `https` are descriptors of listening sockets."""

    parent: int
    number: int
    config: dict[str, Any]
    http: list[int]
    https: list[int]
    timers: int
    ready: int


def to_plain(config: FrontendConfig) -> dict[str, Any]:
    """Return a config for a pipe, secrets included."""
    values = config.model_dump(by_alias=True)
    return {key: value.get_secret_value() if isinstance(value, SecretStr) else value for key, value in values.items()}


class Child:
    """One process, seen from the server."""

    def __init__(self, number: int, listeners: list[Listener], config: FrontendConfig, timers_fd: int) -> None:
        self.number = number
        self.began_s = time.monotonic()
        self.failure: tuple[str, int] | None = None
        self.is_ready = False
        self.ready_fd, said_fd = os.pipe()
        http, *https = [listener.descriptors(number) for listener in listeners]
        spec = Spec(os.getpid(), number, to_plain(config), http, https[0] if https else [], timers_fd, said_fd)
        inherited = (*spec.http, *spec.https, timers_fd, said_fd)
        command = [sys.executable, "-P", "-m", "cluster_serving.frontend.server.process"]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=inherited)
        except OSError:
            os.close(self.ready_fd)
            raise
        finally:
            os.close(said_fd)
        self.pid = self._process.pid
        try:
            self.death_fd = os.pidfd_open(self.pid)
        except OSError:  # no descriptor is left
            os.close(self.ready_fd)
            self._process.kill()
            self._process.communicate()
            raise
        assert self._process.stdin is not None  # noqa: S101 - stdin=PIPE
        try:
            with self._process.stdin as stdin:
                stdin.write(msgspec.json.encode(spec))
        except BrokenPipeError:
            pass  # the process has died, as `reap` will tell

    def hear(self) -> None:
        """Read the process's report about its start. There is one report, or none if the process dies first."""
        line = os.read(self.ready_fd, 1 << 16)
        os.close(self.ready_fd)
        self.ready_fd = -1
        if line:
            said = msgspec.json.decode(line)
            self.is_ready = "pid" in said
            self.failure = None if self.is_ready else (said["failed"], said["code"])

    def signal(self, number: int) -> None:
        """Send a signal, if the process is still there."""
        self._process.send_signal(number)

    def reap(self) -> str | None:
        """Return why the process ended, or None while the process runs."""
        code = self._process.poll()
        if code is None:
            return None
        if self.ready_fd >= 0:
            self.hear()
        os.close(self.death_fd)
        return why_ended(code)
