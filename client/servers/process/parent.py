"""Parent of a process, seen from the process itself: end with the parent, leave signals to the parent, and tell the parent."""

import contextlib
import ctypes
import os
import signal
import sys
from typing import Any

import msgspec

LEFT_TO_PARENT = frozenset({signal.SIGINT, signal.SIGHUP})
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_NO_PARENT = "the parent died while this process started"


def die_with_parent() -> None:
    """Let the kernel send SIGKILL to the process when its parent ends, even while the process hangs in native code.

    One system call: safe between fork and exec.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def stop_with_parent(pid: int) -> None:
    """Let the kernel send SIGTERM to the process when its parent ends, so that the process stops in an orderly way.

    Args:
        pid: the parent. If the parent has ended already, the process exits.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != pid:
        sys.exit(_NO_PARENT)


def leave_signals_to_parent() -> None:
    """Ignore Ctrl-C and the end of a terminal: both reach the whole process group, and the parent decides what to do."""
    for number in LEFT_TO_PARENT:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, LEFT_TO_PARENT)  # the parent starts its children with both held back


class Parent:
    """Parent that has started this process as its `Child` (child.py, with a drawing). This process dies with the parent.

    Standard input then has the spec.

    Attributes:
        pid: process id of the parent.
        child_name: name that the parent has given to this process.
    """

    def __init__(self) -> None:
        die_with_parent()
        leave_signals_to_parent()
        head = msgspec.json.decode(sys.stdin.buffer.readline())
        self.pid: int = head["parent"]
        self.child_name: str = head["name"]
        self._ready_fd: int = head["ready_fd"]
        if os.getppid() != self.pid:
            sys.exit(_NO_PARENT)

    def tell_ready(self, **facts: Any) -> None:
        """Tell the parent that this process is ready."""
        self._tell({"ready": facts})

    def tell_failure(self, reason: str, code: int) -> None:
        """Tell the parent that this process ends with exit code `code`. Without effect after `tell_ready`."""
        self._tell({"failed": reason, "code": code})

    def _tell(self, message: dict[str, Any]) -> None:
        if self._ready_fd >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._ready_fd, msgspec.json.encode(message) + b"\n")
            os.close(self._ready_fd)
            self._ready_fd = -1
