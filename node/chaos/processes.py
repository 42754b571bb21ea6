"""The processes of a run: they die with it, and are known by the path of its poison file in their environment."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from cluster_serving.node.worker.poison import VARIABLE

_RING = "memfd:cluster-serving-ring"


def of_run(poison: Path) -> list[psutil.Process]:
    """Every living process that this run has started, directly or not."""
    return [process for process in psutil.process_iter() if _environment(process).get(VARIABLE) == str(poison)]


def kill_all(poison: Path) -> None:
    """End every process of this run, stopped ones too."""
    for _ in range(3):  # a supervisor may have started one more
        processes = of_run(poison)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)


def describe(process: psutil.Process) -> str:
    """A process for people."""
    try:
        return f"{process.pid}: {' '.join(process.cmdline()[-3:])}"
    except psutil.Error:
        return str(process.pid)


def rings(pid: int) -> set[int]:
    """The inodes of the rings that a process has open."""
    return set(_open_rings(pid))


def holders(inodes: set[int]) -> Iterator[str]:
    """Processes that hold one of these rings."""
    for pid in psutil.pids():
        if inodes.intersection(_open_rings(pid)):
            yield f"process {pid} holds a ring of this run"


def _open_rings(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if _RING in str(entry.readlink()):
                    yield entry.stat().st_ino


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return {} if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE else process.environ()
    except psutil.Error:
        return {}
