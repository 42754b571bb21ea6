"""Cores of the machine as sysfs describes them: sockets, NUMA domains, SMT siblings, fast and efficient cores."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from cluster_serving.node.topology import cpulist

_SLOW = 0.8
"""Share of the fastest core's speed below which a core is an efficient core. Cores that only boost differently stay above."""


class Core(NamedTuple):
    """Core as counted by the scheduler.

    `physical`: physical core, named by the lowest number among the SMT siblings that share the physical core. `package`: socket.
    `domain`: NUMA domain. `efficient`: a hybrid processor has faster cores.
    """

    number: int
    physical: int
    package: int = 0
    domain: int = 0
    efficient: bool = False


def online(root: Path) -> frozenset[int]:
    """Return the numbers of the cores that are switched on, or no numbers when the kernel does not tell."""
    return cpulist.read(root / "sys/devices/system/cpu/online")


def sockets(root: Path) -> tuple[str, ...]:
    """Return the cores of each socket that are switched on, as a list such as `0-3,8-11`."""
    cores = describe(online(root) or os.sched_getaffinity(0), root)
    packages = sorted({core.package for core in cores})
    return tuple(cpulist.written({core.number for core in cores if core.package == package}) for package in packages)


def describe(numbers: Collection[int], root: Path) -> tuple[Core, ...]:
    """Return the properties of cores in order of number. Without data in sysfs, assume a single domain and no SMT."""
    domains = _domains(root / "sys/devices/system/node")
    fast = cpulist.read(root / "sys/devices/cpu_core/cpus")  # Intel's hybrids
    efficient = set(numbers) - fast if fast else set[int]()
    if not fast:
        for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
            texts = {number: cpulist.text_of(root / f"sys/devices/system/cpu/cpu{number}/{name}") for number in numbers}
            speeds = {number: int(text) for number, text in texts.items() if text}
            efficient = {number for number, speed in speeds.items() if speed < _SLOW * max(speeds.values())}
            if efficient:
                break
    cores: list[Core] = []
    for number in sorted(numbers):
        topology = root / f"sys/devices/system/cpu/cpu{number}/topology"
        siblings = cpulist.read(topology / "thread_siblings_list")
        package = int(cpulist.text_of(topology / "physical_package_id") or 0)  # -1: the firmware does not know
        cores.append(
            Core(number, min(siblings | {number}), max(0, package), domains.get(number, 0), number in efficient)
        )
    return tuple(cores)


def _domains(nodes: Path) -> dict[int, int]:
    """Return the NUMA domain of each core. Domains without cores do not occur.

    The cores of a domain without memory count to the nearest domain with memory, because their memory lies there.
    """
    members = {number: cpulist.read(nodes / f"node{number}/cpulist") for number in cpulist.read(nodes / "online")}
    with_memory = cpulist.read(nodes / "has_memory") & members.keys() or members.keys()
    found: dict[int, int] = {}
    for number, cores in members.items():
        home = number
        if number not in with_memory:
            texts = cpulist.text_of(nodes / f"node{number}/distance").split()
            distances = dict(zip(sorted(members), texts, strict=False))
            home = min(with_memory, key=lambda other: (int(distances.get(other, 0)), other))
        found |= dict.fromkeys(cores, home)
    return found
