"""Ties of a child process to its parent: end with the parent, and leave signals to the parent."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Let the kernel send SIGKILL to the process when its parent ends, even while the process hangs in native code.

    One system call: safe between fork and exec.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def leave_signals_to_parent() -> None:
    """Ignore Ctrl-C and the end of a terminal: both reach the whole process group, and the parent decides what to do."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
