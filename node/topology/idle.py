"""Work beside a node that serves: at idle priority, on the processor and the disk as far as nobody else wants them."""

import os
from contextlib import suppress
from pathlib import Path

import psutil

_AUTOGROUP = Path("/proc/self/autogroup")
_LOWEST = "19"


def be_idle() -> None:
    """Give this process, and the processes that it starts from now on, the idle priority."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def leave_session() -> None:
    """Begin a session of the lowest priority.

    The kernel may share the processor out among sessions first (autogroup), and only then among the processes of a session.
    """
    with suppress(PermissionError):  # this process leads a session already
        os.setsid()
    with suppress(OSError):  # the kernel has no such groups
        _AUTOGROUP.write_text(_LOWEST, encoding="ascii")
