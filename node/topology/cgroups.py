"""Limits of the control groups (versions 1 and 2) on this process, on the machine and inside a container.

`/proc/self/cgroup` names the group in each hierarchy. `/proc/self/mountinfo` names the mount point of a hierarchy, or of a part
of the hierarchy. A container often has only its own group mounted, in place of the whole hierarchy. The limits of the container
are then at the mount point.
"""

import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from cluster_serving.node.topology import cpulist

_CPUSETS = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
# Files of the limit and of the memory in use, and the field of `memory.stat` with the reclaimable part: pages of files.
_MEMORY = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


class Limits(NamedTuple):
    """Limits on a process. `cpuset`: allowed cores (empty: any). `quota`: processor time in cores, such as 1.5 (None: any)."""

    cpuset: frozenset[int]
    quota: float | None


def read_limits(root: Path) -> Limits:
    """Return the cores that every group on the path to this process allows, and the smallest quota."""
    groups = list(_groups(root))
    cpusets: list[frozenset[int]] = []
    for group in groups:
        for name in _CPUSETS:
            if cpuset := cpulist.read(group / name):
                cpusets.append(cpuset)
                break
    quotas: list[float] = []
    for group in groups:
        quota, _, period = cpulist.text_of(group / "cpu.max").partition(" ")
        if not quota:
            quota, period = (cpulist.text_of(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota.isdecimal() and period.isdecimal():  # "max" and -1: no limit
            quotas.append(int(quota) / int(period))
    return Limits(frozenset.intersection(*cpusets) if cpusets else frozenset(), min(quotas, default=None))


def throttled_s(root: Path = Path("/")) -> float:
    """Return the seconds during which the quotas of the groups on the path to this process have held processes back."""
    found = 0.0
    for group in _groups(root):
        fields = dict(line.split(maxsplit=1) for line in cpulist.text_of(group / "cpu.stat").splitlines())
        found += int(fields.get("throttled_usec", 0)) / 1e6 + int(fields.get("throttled_time", 0)) / 1e9
    return found


def oom_kills(root: Path = Path("/")) -> int:
    """Return the number of processes of this group that the kernel has killed at a memory limit.

    Version 2 counts the kills below a group too, so the groups around this process would count strangers.
    """
    for group in _groups(root):
        for name in ("memory.events", "memory.oom_control"):
            fields = dict(line.split(maxsplit=1) for line in cpulist.text_of(group / name).splitlines())
            if "oom_kill" in fields:
                return int(fields["oom_kill"])
    return 0


def memory_bytes(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may use at most: those of the machine, or the smallest limit of the groups."""
    total = cpulist.text_of(root / "proc/meminfo").partition("MemTotal:")[2].split(maxsplit=1)
    machine = [1024 * int(total[0])] if total else []
    return min(chain(machine, (limit for limit, _ in _memory(root))), default=sys.maxsize)


def free_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory that the groups on the path to this process leave free, or None without a limit."""
    return min((limit - used for limit, used in _memory(root)), default=None)


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """Yield the memory limit of each group on the path to this process that has a limit, and the bytes in use, in bytes."""
    for group in _groups(root):
        for limit, use, cached in _MEMORY:
            most, used = (cpulist.text_of(group / name) for name in (limit, use))
            if most.isdecimal() and used.isdecimal():  # "max": no limit
                lines = (line.split() for line in cpulist.text_of(group / "memory.stat").splitlines())
                reclaimable = next((int(words[1]) for words in lines if words[0] == cached), 0)
                yield int(most), int(used) - reclaimable
                break


def _groups(root: Path) -> Iterator[Path]:
    """Yield the directories of the groups that limit this process: its own group, and the enclosing groups that are mounted."""
    lines = [line.split(":", 2) for line in cpulist.text_of(root / "proc/self/cgroup").splitlines()]
    for mount in cpulist.text_of(root / "proc/self/mountinfo").splitlines():
        place, _, system = mount.partition(" - ")
        if not system.startswith(("cgroup ", "cgroup2 ")):
            continue
        kind, _, options = system.split(" ", 2)
        # Blanks and further special characters of paths are octal numbers, such as \040.
        top, point = (
            re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text) for text in place.split(" ")[3:5]
        )
        # Version 2 names no controllers, neither for the group nor for the mount.
        mounted = set(options.split(",") if kind == "cgroup" else [""])
        for _, controllers, path in lines:
            if mounted & set(controllers.split(",")):
                yield from _way_up(PurePosixPath(top), root / point.lstrip("/"), PurePosixPath(path))


def _way_up(top: PurePosixPath, point: Path, path: PurePosixPath) -> Iterator[Path]:
    """Yield the directories of group `path` and its enclosing groups, where group `top` is mounted at `point`."""
    inside = path.relative_to(top) if path.is_relative_to(top) else PurePosixPath()
    if ".." in inside.parts:  # a group outside the container's namespace
        inside = PurePosixPath()
    for part in (inside, *inside.parents):
        if (group := point / part).is_dir():
            yield group
