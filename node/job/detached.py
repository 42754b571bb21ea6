"""Starts a process that outlives the one that started it: own session, output to a file, nothing inherited but what is named."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

PASSED_FD = 3  # where the child finds the descriptor that was passed to it


def spawn(argv: Sequence[str], log: Path, environ: Mapping[str, str], pass_fd: int | None = None) -> int:
    """Start a program.

    `posix_spawn` rather than `subprocess`, which wants to be told the end of every child that it started.

    Args:
        argv: absolute path of the program, and its arguments.
        log: its output is appended here; created for its owner only.
        environ: its environment.
        pass_fd: a descriptor of this process that the child gets as `PASSED_FD`.

    Returns:
        Its process id.

    Raises:
        OSError: it cannot be started.
    """
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    if pass_fd is not None:
        actions.append((os.POSIX_SPAWN_DUP2, pass_fd, PASSED_FD))
    return os.posix_spawn(argv[0], list(argv), dict(environ), file_actions=actions, setsid=True)


def ended(pid: int, timeout_s: float) -> bool:
    """Wait until a process has ended; False when it still runs after `timeout_s`. Reaps it when it is a child."""
    try:
        psutil.Process(pid).wait(timeout_s)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True
