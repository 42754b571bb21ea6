"""Threads that a process really has: a library may start more threads than configured, or put threads on other cores."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cluster_serving.node.topology import cpulist

TASKS = Path("/proc/self/task")

_FEEDS = 1  # thread that hands out work and takes turns with the computing threads, as Python's with TensorFlow's


class Threads(NamedTuple):
    """Threads of a process.

    `total`: number of threads. `computing`: number of threads that computed at a time. 0 if no thread computed, or if the kernel
    does not count the time of threads. `cores`: cores that at least one thread may use.
    """

    total: int
    computing: int
    cores: tuple[int, ...]

    def excess(self, wanted: int) -> int:
        """Return the number of computing threads without a core, where `wanted` threads were configured."""
        return max(0, self.computing - _FEEDS - min(wanted, len(self.cores)))


def times(tasks: Path = TASKS) -> dict[int, int]:
    """Return the run time of each thread in ns."""
    texts = {int(task.name): cpulist.text_of(task / "schedstat") for task in tasks.iterdir()}
    return {thread: int(text.split()[0]) if text else 0 for thread, text in texts.items()}


def look(before: Mapping[int, int], tasks: Path = TASKS) -> Threads:
    """Return the threads of this process, with the number of threads that computed since `before`."""
    ran = {thread: time - before.get(thread, 0) for thread, time in times(tasks).items()}
    busiest = max(ran.values(), default=0)
    # Threads that take turns share the work of one thread. So the number of threads that compute at a time is the sum of all
    # times divided by the time of the busiest thread.
    computing = round(sum(ran.values()) / busiest) if busiest else 0
    cores: set[int] = set()
    for thread in ran:
        for line in cpulist.text_of(tasks / str(thread) / "status").splitlines():
            if line.startswith("Cpus_allowed_list:"):
                cores |= cpulist.parse(line.partition(":")[2])
                break
    return Threads(len(ran), computing, tuple(sorted(cores)))
