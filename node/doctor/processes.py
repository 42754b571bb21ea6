"""Checks for processes and rings of nodes whose supervisor has died."""

import shlex
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

import psutil

from cluster_serving.client.servers.checks import Checks, Verdict
from cluster_serving.node.doctor.memory import size
from cluster_serving.node.ring.holders import open_rings

PROCESSES = Checks["list[NodeProcess]"]("Processes")

_CHILD = ["-m", "cluster_serving.node.supervisor.child"]


class NodeProcess(NamedTuple):
    """Process that is a child of a node, or has a ring open.

    Attributes:
        pid: process id.
        name: name of the process.
        is_child: the process is a reader, worker or writer.
        supervised: a supervisor is the parent of the process, or the process is a supervisor.
        rings: inode to size in bytes, of the open rings.
    """

    pid: int
    name: str
    is_child: bool
    supervised: bool
    rings: dict[int, int]


@PROCESSES("CS-LEAK-PROCESS")
def leaked_processes(found: list[NodeProcess]) -> Verdict:
    """Judge whether children of nodes outlive their supervisor."""
    left = [each for each in found if each.is_child and not each.supervised]
    pids = [each.pid for each in left]
    if not left:
        return Verdict("ok", f"{len(found)} processes of nodes, each with its supervisor", evidence={"pids": pids})
    rings = {inode: count for each in left for inode, count in each.rings.items()}
    return Verdict(
        "warn",
        f"{_listed(left)}: the supervisor has died, and the memory of {len(left)} processes and {size(sum(rings.values()))} of "
        "rings stay taken",
        "end the processes",
        _kill(pids),
        len(left),
        {"pids": pids, "ring_bytes": sum(rings.values())},
    )


@PROCESSES("CS-LEAK-SEGMENT")
def leaked_segments(found: list[NodeProcess]) -> Verdict:
    """Judge whether rings are held by programs that are no part of a node."""
    living = {inode for each in found if each.supervised or each.is_child for inode in each.rings}
    strangers = [each for each in found if each.rings.keys() - living]
    bytes_left = sum({inode: n for each in strangers for inode, n in each.rings.items()}.values())
    pids = [each.pid for each in strangers]
    if not strangers:
        return Verdict("ok", "no ring is left behind", evidence={"pids": pids})
    return Verdict(
        "warn",
        f"{_listed(strangers)} keeps {size(bytes_left)} of rings of nodes that have ended",
        "end the program, which a worker has started",
        _kill(pids),
        bytes_left,
        {"pids": pids, "ring_bytes": bytes_left},
    )


def node_processes() -> list[NodeProcess]:
    """Return the processes of nodes and the holders of rings, as far as this user may look."""
    found: list[NodeProcess] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            rings = open_rings(process.pid)
            is_child = process.cmdline()[-3:-1] == _CHILD
            if is_child or rings:
                supervised = _is_ours(process.parent()) if is_child else _is_ours(process)
                found.append(NodeProcess(process.pid, process.name(), is_child, supervised, rings))
    return found


def _is_ours(process: psutil.Process | None) -> bool:
    """Return whether a process may be a supervisor: a command of this package, or any program in Python but a child."""
    words = process.cmdline() if process else []
    text = " ".join(words[:4])
    return words[-3:-1] != _CHILD and ("cluster" in text or "python" in text)


def _listed(processes: Collection[NodeProcess]) -> str:
    return ", ".join(f"{each.name} (pid {each.pid})" for each in processes)


def _kill(pids: Collection[int]) -> str:
    return shlex.join(["kill", "-9", *map(str, pids)])
