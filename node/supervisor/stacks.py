"""Stacks of the threads of another Python process, read from outside by py-spy."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

_TIMEOUT_S = 5.0


def dump(pid: int) -> str:
    """Return the stacks of a process that is about to be killed. The process is stopped first, and not continued.

    A signal stops the process, not ptrace, because py-spy cannot attach to a process that another program has stopped.

    Returns:
        Text of py-spy, or an empty text if py-spy failed. A failure is logged.
    """
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    program = py_spy()
    if program is None:
        log.warning("no stacks: there is no py-spy beside Python or on PATH", pid=pid)
        return ""
    command = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True)
    except subprocess.CalledProcessError as error:
        log.warning("no stacks", pid=pid, reason=reason(error.stderr.decode(errors="replace")))
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("no stacks", pid=pid, reason=str(error))
    else:
        return done.stdout.decode(errors="replace").strip()
    return ""


def reason(said: str) -> str:
    """Return the reason of a failure from the output of py-spy."""
    return said.strip().partition("\n\nStack backtrace")[0]


def py_spy() -> str | None:
    """Return the path of py-spy, or None if py-spy is missing."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")
