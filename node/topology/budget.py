"""Budget of the node on the machine: cores, and processor time on the cores."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from cluster_serving.node.topology import cpulist
from cluster_serving.node.topology.cgroups import read_limits
from cluster_serving.node.topology.machine import Core, describe, online

_FEW = 4  # cores


class Allowance(NamedTuple):
    """Allowed `cores` by number, at least one, and allowed processor time in cores as `quota` (None: no limit)."""

    cores: frozenset[int]
    quota: float | None


class Budget(NamedTuple):
    """Cores and processor time that the node may use.

    `cores`: allowed cores, at least one. `quota`: processor time in cores (None: the full time of all `cores`). `others`: cores
    of the machine that are not allowed now, and may be allowed later.
    """

    cores: tuple[Core, ...]
    quota: float | None = None
    others: tuple[Core, ...] = ()

    @property
    def time(self) -> float:
        """Processor time in cores: the quota or the number of cores, whichever is smaller."""
        return min(len(self.cores), math.inf if self.quota is None else self.quota)

    @property
    def whole(self) -> int:
        """Number of threads that may compute all the time, at least one."""
        return max(1, math.floor(self.time))

    @property
    def physical(self) -> int:
        """Number of physical cores."""
        return len({core.physical for core in self.cores})

    @property
    def domains(self) -> int:
        """Number of NUMA domains with allowed cores."""
        return len({core.domain for core in self.cores})

    @property
    def for_workers(self) -> int:
        """Number of worker threads that fill the budget: a thread for each physical core, where few cores are shared by all.

        Of few cores, one core less would cost a model that computes a fifth of its speed and more.
        """
        return min(self.physical, self.whole) if self.whole <= _FEW else self.beside_others

    @property
    def beside_others(self) -> int:
        """Number of worker threads that leave the time of one core for reader, writer and Redis.

        Where cores have SMT siblings, reader and writer find room on the siblings.
        """
        return max(1, min(self.physical, self.whole - 1))

    def described(self) -> str:
        """Describe the budget, as in `16 cores (0-15)` or `1.5 of 2 cores (0,4)`."""
        count = len(self.cores)
        many = f"{self.time:g} of {count}" if self.time < count else f"{count}"
        return f"{many} {'core' if count == 1 else 'cores'} ({cpulist.written([core.number for core in self.cores])})"


def read_allowance(affinity: Collection[int], root: Path = Path("/")) -> Allowance:
    """Return the cores of an affinity mask that the control groups of this process allow, and the quota.

    Args:
        affinity: numbers of cores, not empty.
        root: root of the file system with `proc` and `sys`.
    """
    limits = read_limits(root)
    allowed = frozenset(affinity)
    for narrower in (online(root), limits.cpuset):
        # A list that leaves no core is out of date: the mask is the kernel's own, and was read before.
        allowed = allowed & narrower or allowed
    return Allowance(allowed, limits.quota)


def read_budget(allowance: Allowance, root: Path = Path("/")) -> Budget:
    """Return the budget of an allowance, with the properties of the cores. `root`: root of the file system with `sys`."""
    machine = describe(online(root) | allowance.cores, root)
    mine, others = (
        tuple(core for core in machine if (core.number in allowance.cores) is allowed) for allowed in (True, False)
    )
    return Budget(mine, allowance.quota, others)
