"""What threads a process really has: a library may start more than it was told to, or put them on other cores."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cluster_serving.node.topology import cpulist

TASKS = Path("/proc/self/task")

_FEEDS = 1  # a thread that hands work to the others takes turns with them, as Python's does with TensorFlow's


class Threads(NamedTuple):
    """`total` threads, of which so many were `computing` at a time, and the `cores` that one of them at least may use.

    `computing` is 0 where nothing was computed, or the kernel does not count a thread's time.
    """

    total: int
    computing: int
    cores: tuple[int, ...]

    def excess(self, wanted: int) -> int:
        """How many threads compute for which there is no core, when `wanted` were asked for."""
        return max(0, self.computing - _FEEDS - min(wanted, len(self.cores)))


def times(tasks: Path = TASKS) -> dict[int, int]:
    """Thread to the nanoseconds that it has run."""
    texts = {int(task.name): cpulist.text_of(task / "schedstat") for task in tasks.iterdir()}
    return {thread: int(text.split()[0]) if text else 0 for thread, text in texts.items()}


def look(before: Mapping[int, int], tasks: Path = TASKS) -> Threads:
    """The threads of this process, and what they have done since `before`."""
    ran = {thread: time - before.get(thread, 0) for thread, time in times(tasks).items()}
    busiest = max(ran.values(), default=0)
    # Threads that take turns share out one thread's work: as many compute at a time as the sum makes of the busiest one's time.
    computing = round(sum(ran.values()) / busiest) if busiest else 0
    cores = frozenset[int]().union(*(_cores(tasks / str(thread)) for thread in ran))
    return Threads(len(ran), computing, tuple(sorted(cores)))


def _cores(task: Path) -> frozenset[int]:
    for line in cpulist.text_of(task / "status").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return cpulist.parse(line.partition(":")[2])
    return frozenset()
