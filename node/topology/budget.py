"""How much of the machine the node may use: which cores, and how much time on them."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from cluster_serving.node.topology import cpulist
from cluster_serving.node.topology.cgroups import read_limits
from cluster_serving.node.topology.machine import Core, describe, online


class Allowance(NamedTuple):
    """The numbers of the `cores` that may be used, at least one, and processor time in cores (None: all there is)."""

    cores: frozenset[int]
    quota: float | None


class Budget(NamedTuple):
    """`cores` that may be used, at least one. `quota`: processor time in cores; None: all the time of all of them.

    `others` are cores of the machine that may not be used, and may be later.
    """

    cores: tuple[Core, ...]
    quota: float | None = None
    others: tuple[Core, ...] = ()

    @property
    def time(self) -> float:
        """Processor time in cores: the quota, or how many cores there are."""
        return min(len(self.cores), math.inf if self.quota is None else self.quota)

    @property
    def whole(self) -> int:
        """How many threads may compute all the time; at least one."""
        return max(1, math.floor(self.time))

    @property
    def physical(self) -> int:
        """How many physical cores there are."""
        return len({core.physical for core in self.cores})

    @property
    def for_workers(self) -> int:
        """How many threads of workers fill it: one a physical core; one core's time is for reader, writer and Redis.

        Where cores have SMT siblings, reader and writer find room on these.
        """
        return max(1, min(self.physical, self.whole - 1))

    def described(self) -> str:
        """Such as `16 cores (0-15)`, or `1.5 of 2 cores (0,4)`."""
        count = len(self.cores)
        many = f"{self.time:g} of {count}" if self.time < count else f"{count}"
        return f"{many} {'core' if count == 1 else 'cores'} ({cpulist.written([core.number for core in self.cores])})"


def read_allowance(affinity: Collection[int], root: Path = Path("/")) -> Allowance:
    """What is left of an affinity mask within the control groups of this process.

    Args:
        affinity: numbers of cores; not empty.
        root: of the file system with `proc` and `sys`.
    """
    limits = read_limits(root)
    allowed = frozenset(affinity)
    for narrower in (online(root), limits.cpuset):
        # What leaves nothing is out of date: the mask is the kernel's own, and was read before.
        allowed = allowed & narrower or allowed
    return Allowance(allowed, limits.quota)


def read_budget(allowance: Allowance, root: Path = Path("/")) -> Budget:
    """The same, with what these cores are like; `root` is that of the file system with `sys`."""
    machine = describe(online(root) | allowance.cores, root)
    mine, others = (
        tuple(core for core in machine if (core.number in allowance.cores) is allowed) for allowed in (True, False)
    )
    return Budget(mine, allowance.quota, others)
