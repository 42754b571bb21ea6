"""One process of a frontend, seen from the server, and the spec of the process."""

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import SecretStr

from cluster_serving.client.servers.process import child
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.server.listeners import Listener

STACKS_SIGNAL = signal.SIGUSR1
_DUMP_S = 0.5


class Spec(msgspec.Struct, frozen=True):
    """Parameters of a process.

    `http`, `https`, `timers` and `stacks` are descriptors: of listening sockets, of the shared memory, and of a file in memory. The
    process writes the stacks of its threads to the file on `STACKS_SIGNAL`.
    """

    number: int
    config: dict[str, Any]
    http: list[int]
    https: list[int]
    timers: int
    stacks: int


def to_plain(config: FrontendConfig) -> dict[str, Any]:
    """Return a config for a pipe, secrets included."""
    values = config.model_dump(by_alias=True)
    return {key: value.get_secret_value() if isinstance(value, SecretStr) else value for key, value in values.items()}


class Child(child.Child):
    """Process `number` of a frontend, with its sockets of each listener and the memory of `Timers`."""

    def __init__(self, number: int, listeners: Sequence[Listener], config: FrontendConfig, timers_fd: int) -> None:
        self.hung = False
        """True once the process is killed because it hangs."""
        http, *https = [listener.descriptors(number, config.workers) for listener in listeners]
        self._stacks_fd = os.memfd_create("stacks")
        spec = Spec(number, to_plain(config), http, https[0] if https else [], timers_fd, self._stacks_fd)
        try:
            super().__init__(
                f"frontend-{number}",
                ["cluster_serving.frontend.server.process"],
                msgspec.json.encode(spec),
                (*spec.http, *spec.https, timers_fd, self._stacks_fd),
            )
        except OSError:
            os.close(self._stacks_fd)
            raise

    def kill_hung(self) -> str:
        """Kill a process that hangs, and return the stacks of its threads. Empty: a signal had stopped the process."""
        self.hung = True
        self.signal(STACKS_SIGNAL)
        time.sleep(_DUMP_S)  # nothing tells the end of the text
        self.signal(signal.SIGKILL)
        return os.pread(self._stacks_fd, 1 << 20, 0).decode(errors="replace").strip()

    def close(self) -> None:
        """Close the descriptors, after the process has been reaped."""
        super().close()
        os.close(self._stacks_fd)
