"""Where the threads of another Python process stand, as py-spy sees it from outside."""

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
    """The stacks of a process that is about to be killed: it is stopped first, and not continued.

    Stopped by a signal and not by ptrace: py-spy cannot attach to what somebody else has stopped.

    Returns:
        py-spy's text; empty when it could not look, which is logged.
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
    """Why py-spy failed, of all that it said."""
    return said.strip().partition("\n\nStack backtrace")[0]


def py_spy() -> str | None:
    """The program; None where it is missing."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")
