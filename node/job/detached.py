"""Detached processes, which outlive their parent: own session, output to a file, and only named descriptors inherited."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

PASSED_FD = 3  # number of the passed descriptor in the child


def spawn(argv: Sequence[str], log: Path, environ: Mapping[str, str], pass_fd: int | None = None) -> int:
    """Start a program.

    Uses `posix_spawn`, because `subprocess` expects to be told the end of every child.

    Args:
        argv: absolute path of the program, and its arguments.
        log: file to append the output to, created for its owner only.
        environ: environment of the program.
        pass_fd: descriptor of this process that the child receives as `PASSED_FD`.

    Returns:
        The process id of the program.

    Raises:
        OSError: the program cannot be started.
    """
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    if pass_fd is not None:
        actions.append((os.POSIX_SPAWN_DUP2, pass_fd, PASSED_FD))
    return os.posix_spawn(argv[0], list(argv), dict(environ), file_actions=actions, setsid=True)


def born_s(process: psutil.Process) -> float:
    """Return the seconds from the boot of the machine to the creation of a process, whatever the clock has been set to since.

    Raises:
        psutil.NoSuchProcess: the process has ended.
    """
    seconds = process.create_time() - psutil.boot_time()
    return round(seconds, 2)  # the kernel counts in hundredths of a second


def ended(pid: int, timeout_s: float) -> bool:
    """Wait until a process has ended, and reap a child. Return False if the process still runs after `timeout_s`."""
    try:
        psutil.Process(pid).wait(timeout_s)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True
