"""Facts about the machine and its limits, read below the root of a file system."""

import ctypes
import os
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from cluster_serving.node.topology import cgroups, cpulist
from cluster_serving.node.topology.budget import Budget, read_allowance, read_budget
from cluster_serving.node.topology.memory import has_libnuma

_CPU = "sys/devices/system/cpu"
_SAMPLE_S = 0.3


class Demand(NamedTuple):
    """Demand of a job on the machine.

    Attributes:
        workers: number of workers.
        threads: threads of one worker.
        model_bytes: size of the model's files.
        backend: backend of the model. Empty: not known.
        encrypted: the model is decrypted in memory.
        running: the job runs, so that its memory is already taken.
        throttled: share of the time during which the quota holds the node back. None: not known.
    """

    workers: int
    threads: int
    model_bytes: int = 0
    backend: str = ""
    encrypted: bool = False
    running: bool = False
    throttled: float | None = None

    @property
    def computing(self) -> int:
        """Number of threads that compute at a time."""
        return self.workers * self.threads


class MachineFacts(NamedTuple):
    """Facts about the machine. Sizes are in bytes.

    Attributes:
        budget: cores and processor time that a node may use.
        demand: demand of the job, or None without a job.
        libnuma: libnuma is installed.
        mallopt: the allocator of the C library takes settings.
        governors: frequency governors of the allowed cores. Empty: the kernel does not tell.
        driver: driver of the frequency.
        steal: share of the processor time that the hypervisor gave to other machines while the facts were read.
        memory_free: memory that this process and its children may still take.
        memory_limited: a control group limits the memory.
        oom_kills: processes that the kernel has killed at the limit of the control groups.
        shm_free: free room in /dev/shm.
        open_files: soft limit of open files.
        disk_free: free room of the disk with the job's directory.
        disk_total: size of that disk.
    """

    budget: Budget
    demand: Demand | None
    libnuma: bool
    mallopt: bool
    governors: frozenset[str]
    driver: str
    steal: float
    memory_free: int
    memory_limited: bool
    oom_kills: int
    shm_free: int
    open_files: int
    disk_free: int
    disk_total: int


def read_machine(
    demand: Demand | None, home: Path, root: Path = Path("/"), cores: Collection[int] = ()
) -> MachineFacts:
    """Return the facts about the machine.

    Args:
        demand: demand of the job, or None.
        home: directory of the jobs, or a directory in which it will be made.
        root: root of the file system with `proc` and `sys`.
        cores: affinity mask. Empty: the mask of this process.
    """
    before, began_s = _times(root), time.monotonic()
    budget = read_budget(read_allowance(cores or os.sched_getaffinity(0), root), root)
    frequencies = [root / f"{_CPU}/cpu{core.number}/cpufreq" for core in budget.cores]
    governors = {cpulist.text_of(each / "scaling_governor") for each in frequencies}
    limited = cgroups.free_bytes(root)
    available = int((_words_after("MemAvailable:", root / "proc/meminfo") or ["0"])[0]) * 1024
    open_files = (_words_after("Max open files", root / "proc/self/limits") or ["unlimited"])[0]
    disk = shutil.disk_usage(next(each for each in (home, *home.parents) if each.exists()))
    shm = root / "dev/shm"
    facts = MachineFacts(
        budget=budget,
        demand=demand,
        libnuma=has_libnuma(),
        mallopt=hasattr(ctypes.CDLL(None), "mallopt"),
        governors=frozenset(governors - {""}),
        driver=max((cpulist.text_of(each / "scaling_driver") for each in frequencies), default=""),
        steal=0.0,
        memory_free=available if limited is None else min(limited, available),
        memory_limited=limited is not None,
        oom_kills=cgroups.oom_kills(root),
        shm_free=shutil.disk_usage(shm).free if shm.is_dir() else 0,
        open_files=int(open_files) if open_files.isdecimal() else 1 << 30,
        disk_free=disk.free,
        disk_total=disk.total,
    )
    time.sleep(max(0.0, began_s + _SAMPLE_S - time.monotonic()))
    return facts._replace(steal=stolen(before, _times(root)))


def stolen(before: tuple[int, ...], after: tuple[int, ...]) -> float:
    """Return the stolen share of the time between two readings of `/proc/stat`, whose eighth number is the stolen time."""
    ran = [late - early for early, late in zip(before[:8], after[:8], strict=True)]
    return ran[7] / sum(ran) if len(ran) == 8 and sum(ran) > 0 else 0.0


def _times(root: Path) -> tuple[int, ...]:
    words = cpulist.text_of(root / "proc/stat").partition("\n")[0].split()
    return tuple(map(int, words[1:]))


def _words_after(label: str, file: Path) -> list[str]:
    """Return the words of the line that begins with a label, without the label. Empty: there is no such line."""
    lines = cpulist.text_of(file).splitlines()
    return next((line.removeprefix(label).split() for line in lines if line.startswith(label)), [])
