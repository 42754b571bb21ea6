"""Small trees of `proc` and `sys` files that look like other machines and containers."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from cluster_serving.node.topology import cpulist
from cluster_serving.node.topology.budget import Budget, read_allowance, read_budget


@dataclass(frozen=True)
class Machine:
    """A machine to be looked at: `domains` of `cores` physical cores with `siblings` each.

    Cores are numbered as Linux does: all first siblings, domain after domain, then all second ones. `efficient` cores are physical
    ones, and run at half the frequency. `memoryless` domains have cores only, `empty` ones have memory only.
    """

    domains: int = 1
    cores: int = 4
    siblings: int = 1
    packages: int = 1
    offline: Collection[int] = ()
    efficient: Collection[int] = ()
    memoryless: Collection[int] = ()
    empty: int = 0
    files: dict[str, str] = field(default_factory=dict[str, str])
    """More files, or other contents."""

    @property
    def count(self) -> int:
        """Number of cores that the scheduler would see if all were online."""
        return self.domains * self.cores * self.siblings

    def domain_of(self, number: int) -> int:
        """The domain of a core."""
        return number % (self.domains * self.cores) // self.cores

    def build(self, root: Path) -> Path:
        """Write the tree below `root`."""
        physical = self.domains * self.cores
        online = frozenset(range(self.count)) - set(self.offline)
        files = {"sys/devices/system/cpu/online": cpulist.written(online)}
        for number in online:
            core = f"sys/devices/system/cpu/cpu{number}"
            siblings = {other for other in online if other % physical == number % physical}
            files[f"{core}/topology/thread_siblings_list"] = cpulist.written(siblings)
            files[f"{core}/topology/physical_package_id"] = str(
                self.domain_of(number) // max(1, self.domains // self.packages)
            )
            slow = number % physical in self.efficient
            files[f"{core}/cpufreq/cpuinfo_max_freq"] = "2000000" if slow else "4000000"
        files |= self._nodes(online)
        for name, text in (files | self.files).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        return root

    def _nodes(self, online: Collection[int]) -> dict[str, str]:
        nodes = range(self.domains + self.empty)
        files = {"online": cpulist.written(nodes), "has_memory": cpulist.written(set(nodes) - set(self.memoryless))}
        for node in nodes:
            cores = [number for number in online if node < self.domains and self.domain_of(number) == node]
            files[f"node{node}/cpulist"] = cpulist.written(cores)
            # Neighbours two by two, as in processors of several dies.
            files[f"node{node}/distance"] = " ".join(
                str(10 if node == other else 12 if node // 2 == other // 2 else 32) for other in nodes
            )
        return {f"sys/devices/system/node/{name}": text for name, text in files.items()}


def control_groups(mounts: dict[str, tuple[str, str]], own: dict[str, str], groups: dict[str, str]) -> dict[str, str]:
    """Files of control groups, for `Machine.files`.

    Args:
        mounts: controllers ("" for version 2) to what is mounted and where, as in `mountinfo`.
        own: controllers to the group of this process, as in `/proc/self/cgroup`.
        groups: path of a file below `/sys/fs/cgroup`, to its text.
    """
    lines = ["22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"]
    for number, (controllers, (top, point)) in enumerate(mounts.items(), 30):
        system = f"cgroup cgroup rw,{controllers}" if controllers else "cgroup2 cgroup2 rw,nsdelegate"
        lines.append(f"{number} 22 0:{number} {top} {point} rw,nosuid shared:{number} - {system}")
    return {
        "proc/self/mountinfo": "\n".join(lines),
        "proc/self/cgroup": "\n".join(
            f"{number if controllers else 0}:{controllers}:{path}"
            for number, (controllers, path) in enumerate(own.items(), 1)
        ),
        **{f"sys/fs/cgroup/{name}": text for name, text in groups.items()},
    }


def budget_of(affinity: Collection[int], root: Path) -> Budget:
    """Return the part of the machine in a tree that a process with this mask may use."""
    return read_budget(read_allowance(affinity, root), root)
