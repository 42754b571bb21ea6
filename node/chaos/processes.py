"""Processes of a run: killed with the run, and recognised by the path of the run's poison file in the environment."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from cluster_serving.node.ring.holders import open_rings
from cluster_serving.node.worker.poison import VARIABLE


def of_run(poison: Path) -> list[psutil.Process]:
    """Return every living process that a run has started, directly or not."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(VARIABLE) == str(poison):
                found.append(process)
    return found


def kill_all(poison: Path) -> None:
    """Kill every process of a run, stopped processes too."""
    for _ in range(3):  # a supervisor may have started a new child
        processes = of_run(poison)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)


def describe(process: psutil.Process) -> str:
    """Return a description of a process for people."""
    try:
        return f"{process.pid}: {' '.join(process.cmdline()[-3:])}"
    except psutil.Error:
        return str(process.pid)


def holders(inodes: set[int]) -> Iterator[str]:
    """Yield a description of each process that holds a ring with one of the inodes."""
    for pid in psutil.pids():
        if inodes.intersection(open_rings(pid)):
            yield f"process {pid} holds a ring of this run"
