"""Processes that hang."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def stopped(pid: int) -> Generator[None]:
    """The process does nothing until the block ends. The kernel goes on taking connections and bytes for it."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
