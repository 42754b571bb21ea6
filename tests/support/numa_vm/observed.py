"""Observations of a node, written in the machine and read outside: where its processes may run and where their memory lies."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

_RING = "memfd:cluster-serving-ring"

Pages = dict[int, int]
"""NUMA domain to pages."""


class Process(msgspec.Struct):
    """`cores`: those that some thread of it may use. `rings`: by inode, of what it has touched. `own`: of no file."""

    kind: str
    cores: list[int]
    rings: dict[int, Pages]
    own: Pages
    policies: list[str]
    """Policies by which the pages of the rings are placed, as the kernel tells them."""


class Observed(msgspec.Struct):
    """Of a node that has served; `answered`: by its own count. `placement`: as the command draws it."""

    sent: int
    wrong: int
    answered: int
    unanswered: int
    processes: list[Process]
    placement: str
    seconds: dict[str, float]

    def of(self, kind: str) -> list[Process]:
        """Its readers, writers or workers, or the supervisor."""
        return [process for process in self.processes if process.kind == kind]

    def lanes(self) -> dict[int, list[Process]]:
        """Reader, writer and workers of each lane, by the inode of its ring."""
        found: dict[int, list[Process]] = {}
        for process in self.processes:
            if process.kind != "supervisor":
                (ring,) = process.rings
                found.setdefault(ring, []).append(process)
        return found


def processes(supervisor: int) -> list[Process]:
    """A node's processes, as the kernel sees them."""
    parent = psutil.Process(supervisor)
    return [_seen("supervisor", parent), *(_seen(child.cmdline()[-1], child) for child in parent.children())]


def _seen(kind: str, process: psutil.Process) -> Process:
    inodes = dict(_inodes(process.pid))
    seen = Process(kind, _cores(process.pid), {}, Counter(), [])
    policies: set[str] = set()
    for line in Path(f"/proc/{process.pid}/numa_maps").read_text().splitlines():
        address, policy, *words = line.split()
        if address in inodes:
            policies.add(policy)
            seen.rings[inodes[address]] = _pages(words)
        elif not any(word.startswith("file=") for word in words):
            seen.own = Counter(seen.own) + _pages(words)
    seen.policies = sorted(policies)
    return seen


def _inodes(pid: int) -> Iterator[tuple[str, int]]:
    """Address and inode of each ring that a process has mapped."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        address, _, _, _, inode, *name = line.split()
        if name and _RING in name[0]:
            yield address.partition("-")[0], int(inode)


def _pages(words: list[str]) -> Counter[int]:
    named = (word.partition("=") for word in words)
    return Counter({int(name[1:]): int(count) for name, _, count in named if name[0] == "N" and name[1:].isdigit()})


def _cores(pid: int) -> list[int]:
    threads = psutil.Process(pid).threads()
    return sorted({core for thread in threads for core in psutil.Process(thread.id).cpu_affinity() or ()})
