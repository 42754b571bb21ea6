"""Child process, seen from its parent: start, ready message, signals, and the reason of the end.

    parent: Child                                child: Parent (parent.py)
    Popen, environment, descriptors  ─────────►
    standard input                   ─────────►  {"name": "...", "parent": pid, "ready_fd": n}, a newline, and the spec
    ready pipe                       ◄─────────  {"ready": {...}} or {"failed": "...", "code": n}, and a newline
    pidfd                            ◄─────────  readable when the child has ended

A child dies with its parent: the kernel sends SIGKILL to the child (PR_SET_PDEATHSIG), even during a hang in native code. When to
start, kill and replace a child is decided by the supervisor of a node, and by the server of a frontend.
"""

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from cluster_serving.client.servers.process.parent import LEFT_TO_PARENT


class Child:
    """Running child process.

    Args:
        name: name in logs.
        command: module that runs as `python -m`, and its arguments.
        spec: bytes for the child to read from standard input, after the child has made its `Parent`.
        descriptors: file descriptors that the child inherits.
        environment: environment variables in addition to the parent's variables.
        stderr: descriptor for the child's standard error. None: the parent's standard error.

    Raises:
        OSError: the child cannot be started. Neither a process nor a descriptor is left.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        spec: bytes,
        descriptors: Sequence[int],
        environment: Mapping[str, str] | None = None,
        stderr: int | None = None,
    ) -> None:
        self.name = name
        self.ready: dict[str, Any] | None = None
        """Facts that the child has told in its ready message. None: the child is not ready."""
        self.failure: tuple[str, int] | None = None
        """Reason and exit code of a child that could not become ready, told by the child."""
        self.started_s = time.monotonic()
        self.ready_s = 0.0
        """Time of the ready message, in seconds of the monotonic clock."""
        self._buffer = b""
        self._ready_fd, write_fd = os.pipe()
        os.set_blocking(self._ready_fd, False)
        # Held back until the child leaves them to its parent: Ctrl-C would end a child in the middle of its imports.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_PARENT)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", *command],
                stdin=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
                pass_fds=(*descriptors, write_fd),
            )
        except OSError:
            os.close(self._ready_fd)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            os.close(write_fd)
        self.pid = self._process.pid
        try:
            self.death_fd = os.pidfd_open(self.pid)
        except OSError:  # without the descriptor the child's end would go unnoticed
            os.close(self._ready_fd)
            with self._process:
                self._process.kill()
            raise
        assert self._process.stdin is not None  # noqa: S101 - stdin=PIPE
        head = msgspec.json.encode({"name": name, "parent": os.getpid(), "ready_fd": write_fd})
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:  # the child died, and `reap` tells why
            stdin.write(head + b"\n" + spec)

    def fileno(self) -> int:
        """Return the ready pipe, for `select`. `hear` closes the pipe."""
        return self._ready_fd

    @property
    def booting(self) -> bool:
        """True until the child has sent `ready` or `failed`."""
        return self._ready_fd >= 0

    def hear(self) -> None:
        """Read the ready pipe, and set `ready` or `failure` when the child has sent its message."""
        while self.booting:
            try:
                chunk = os.read(self._ready_fd, 1 << 16)
            except BlockingIOError:
                return
            if not chunk:
                self._close_pipe()
                return
            self._buffer += chunk
            if not self._buffer.endswith(b"\n"):
                continue
            # Do not wait for the end of file: a process forked by the child keeps the pipe open.
            self._close_pipe()
            message = msgspec.json.decode(self._buffer)
            self.ready = message.get("ready")
            if self.ready is None:
                self.failure = (message["failed"], message["code"])
            else:
                self.ready_s = time.monotonic()

    def signal(self, number: int) -> None:
        """Send a signal, if the child still runs."""
        self._process.send_signal(number)

    def reap(self) -> str | None:
        """Return the reason why the child ended, or None while the child runs."""
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return f"exit code {code}"
        if code == -signal.SIGKILL:
            return "killed by SIGKILL; out of memory?"
        return f"killed by {next((known.name for known in signal.Signals if known == -code), f'signal {-code}')}"

    def close(self) -> None:
        """Close the descriptors, after the child has been reaped."""
        os.close(self.death_fd)
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self.booting:
            os.close(self._ready_fd)
            self._ready_fd = -1


C = TypeVar("C", bound=Child)


def wait(children: Collection[C], wake_fd: int, timeout_s: float) -> tuple[bool, list[C]]:
    """Wait until a child sends a message or ends, until `wake_fd` is readable, or until `timeout_s` is over.

    Args:
        children: running children.
        wake_fd: descriptor of the caller.
        timeout_s: seconds, or `math.inf`.

    Returns:
        Whether `wake_fd` is readable, and the children with a message to hear.
    """
    speaking = {child.fileno(): child for child in children if child.booting}
    poll = select.poll()
    for descriptor in (wake_fd, *speaking, *(child.death_fd for child in children)):
        poll.register(descriptor, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(None if timeout_s == math.inf else max(0.0, timeout_s) * 1000)}
    return wake_fd in ready, [speaking[descriptor] for descriptor in speaking.keys() & ready]
