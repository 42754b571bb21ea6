"""`status --placement`: map of this machine's sockets, NUMA domains and cores, with the node processes on each core."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from cluster_serving.client.servers.process.table import Table
from cluster_serving.node.job.directory import Job
from cluster_serving.node.topology import cpulist
from cluster_serving.node.topology.machine import Core, describe, online

_CHILD = "cluster_serving.node.supervisor.child"
_UNBROKEN = "\u2800"  # an empty column that is no space, so that rich breaks no line there


class Running(NamedTuple):
    """Process of a node, with its number of threads and its allowed cores. `name` is the name in its log lines."""

    job: str
    kind: str
    name: str
    pid: int
    threads: int
    cores: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.job} {self.name} {self.pid}"

    @property
    def lane(self) -> int:
        """Number of the lane, from the name of a reader or writer."""
        return int(self.name.partition("-")[2] or 0)


def all_cores(root: Path = Path("/")) -> tuple[Core, ...]:
    """Return the cores of this machine that are online."""
    return describe(online(root) or os.sched_getaffinity(0), root)


def processes(jobs: Sequence[Job]) -> list[Running]:
    """Return the processes of the running jobs among `jobs`."""
    found: list[Running] = []
    for job in jobs:
        supervisor = job.supervisor()
        if supervisor is None:
            continue
        try:
            found.append(_looked_at(job.name, "supervisor", supervisor))
            children = supervisor.children()
        except psutil.Error:  # the supervisor has just ended
            continue
        for child in children:
            try:
                command = child.cmdline()
                if _CHILD in command:
                    found.append(_looked_at(job.name, command[-1], child))
            except psutil.Error:
                continue
    return found


def _looked_at(job: str, kind: str, process: psutil.Process) -> Running:
    name = process.name()
    cores = tuple(process.cpu_affinity() or ())
    return Running(job, kind, name if name.startswith(kind) else kind, process.pid, process.num_threads(), cores)


def described(cores: Sequence[Core], running: Sequence[Running]) -> dict[str, Any]:
    """Return cores and processes for JSON."""
    return {
        "cores": [core._asdict() for core in cores],
        "processes": [process._asdict() for process in running],
    }


def drawn(cores: Sequence[Core], running: Sequence[Running], width: int) -> str:
    """Draw a map of `width` columns: sockets, NUMA domains and physical cores, with the processes pinned to each core.

    The row of a domain names the processes pinned to the whole domain, and the lanes with a reader pinned inside the domain. The
    last rows name the processes that may use every physical core.
    """
    free = [process for process in running if _is_free(process, cores)]
    kept = [process for process in running if process not in free]
    drawing = Table("", "")
    ordered = sorted(cores, key=attrgetter("package", "domain", "physical", "number"))
    for package, members in groupby(ordered, lambda core: core.package):
        drawing.add(f"socket {package}")
        for domain, inside in groupby(members, lambda core: core.domain):
            here = list(inside)
            numbers = {core.number for core in here}
            inner = [process for process in kept if numbers.issuperset(process.cores)]
            every = [process for process in inner if _is_free(process, here)]
            readers = {process.lane for process in inner if process.kind == "reader"}
            noun = "lane" if len(readers) == 1 else "lanes"
            lanes = f", {noun} {cpulist.written(readers)}" if readers else ""
            drawing.add(f"  NUMA domain {domain}{lanes}", _names(every))
            for label, processes_there in _rows(here, [process for process in kept if process not in every]):
                drawing.add(f"    {label}", _names(processes_there) or "-")
    for mask in dict.fromkeys(process.cores for process in free):
        label = "any core" if len(mask) >= len(cores) else f"cores {cpulist.written(mask)}"
        drawing.add(f"on {label}", _names(process for process in free if process.cores == mask))
    return "\n".join(drawing.lines(width)).replace(_UNBROKEN, " ")


def _is_free(process: Running, cores: Sequence[Core]) -> bool:
    """Return whether a process may use at least one sibling of every physical core."""
    return {core.physical for core in cores} == {core.physical for core in cores if core.number in process.cores}


def _rows(cores: Sequence[Core], kept: Sequence[Running]) -> Iterator[tuple[str, list[Running]]]:
    """Yield label and processes of each run of neighbouring cores with the same processes."""

    def known(core: Core) -> tuple[bool, list[Running]]:
        siblings = {other.number for other in cores if other.physical == core.physical}
        return core.efficient, [process for process in kept if siblings & set(process.cores)]

    for (efficient, here), members in groupby(cores, known):
        numbers = [core.number for core in members]
        noun = "core" if len(numbers) == 1 else "cores"
        yield f"{noun} {cpulist.written(numbers)}{' efficient' if efficient else ''}", here


def _names(processes: Iterable[Running]) -> str:
    return ", ".join(str(process).replace(" ", _UNBROKEN) for process in processes)
