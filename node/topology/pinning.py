"""Keeps a process that runs already on other cores than before, with all its threads."""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path


def pin(pid: int, cores: Collection[int]) -> None:
    """Move every thread of a process; those that have just ended, and cores that have just gone, are left out."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                os.sched_setaffinity(int(task.name), cores)
