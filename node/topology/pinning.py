"""Pinning of a running process, with all its threads, to new cores."""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path


def pin(pid: int, cores: Collection[int]) -> None:
    """Move every thread of a process to `cores`. Ignore threads that have just ended and cores that have just gone."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                os.sched_setaffinity(int(task.name), cores)
