"""Checks of the machine's memory, disk and limits. The checks belong to the group of the machine."""

from cluster_serving.client.servers.checks import Verdict
from cluster_serving.node.doctor.machine import MACHINE
from cluster_serving.node.doctor.machine_facts import MachineFacts
from cluster_serving.node.models.allocator import GAINS
from cluster_serving.node.models.fingerprint import copy_bytes

_FEWEST_FILES = 1024
_FILES_OF_WORKER = 16
_DISK_SHARE, _DISK_BYTES = 0.05, 2 << 30
_DISK_FULL = 100 << 20


@MACHINE("CS-MEM-ALLOCATOR")
def allocator(facts: MachineFacts) -> Verdict:
    """Judge whether the allocator can keep freed memory, where the backend gains by it."""
    backend = facts.demand.backend if facts.demand else ""
    if facts.mallopt or backend not in GAINS:
        return Verdict("ok", "the allocator suits the backend", evidence={"mallopt": facts.mallopt})
    return Verdict(
        "warn",
        f"the C library has no mallopt: every run of a model in {backend} faults its pages in again, 15% of its time and more",
        "use an image with glibc, such as python:3.12-slim instead of alpine",
        evidence={"backend": backend},
    )


@MACHINE("CS-MEM-LEFT")
def memory_left(facts: MachineFacts) -> Verdict:
    """Judge the free memory against the copies of the model. The control group's limit also counts the rings."""
    demand = facts.demand
    of = "the control group leaves" if facts.memory_limited else "the machine has"
    copies = 1 if demand is None or demand.running else demand.workers
    needed = copies * copy_bytes(demand.model_bytes if demand else 0)
    evidence = {"free_bytes": facts.memory_free, "needed_bytes": needed}
    if facts.memory_free >= needed:
        return Verdict("ok", f"{of} {size(facts.memory_free)} of memory free", evidence=evidence)
    use = "another worker or a change of model" if demand and demand.running else f"{copies} workers with their models"
    return Verdict(
        "warn",
        f"{of} {size(facts.memory_free)} of memory free, and {use} need about {size(needed)}: the kernel kills a worker",
        "raise the memory limit (docker run --memory), or set fewer workers",
        "cluster-serving start --workers 1",
        needed / max(1, facts.memory_free),
        evidence,
    )


@MACHINE("CS-MEM-OOM")
def oom(facts: MachineFacts) -> Verdict:
    """Judge whether the kernel has killed processes at the memory limit."""
    if not facts.oom_kills:
        return Verdict("ok", "no process was killed for its memory", evidence={"oom_kills": 0})
    return Verdict(
        "warn",
        f"the kernel has killed {facts.oom_kills} processes of this control group for their memory",
        "raise the memory limit, or set maxWorkerMemory so that a growing worker is replaced in time",
        "cluster-serving start --set maxWorkerMemory=2g",
        facts.oom_kills,
        {"oom_kills": facts.oom_kills},
    )


@MACHINE("CS-MEM-SHM")
def shm(facts: MachineFacts) -> Verdict:
    """Judge the room in /dev/shm, which only an encrypted model uses: rings are anonymous memory."""
    demand = facts.demand
    evidence = {"free_bytes": facts.shm_free}
    if demand is None or not demand.encrypted or facts.shm_free >= 2 * demand.model_bytes:
        return Verdict("ok", "rings do not use /dev/shm", evidence=evidence)
    return Verdict(
        "warn",
        f"{size(facts.shm_free)} are free in /dev/shm: an encrypted model of {size(demand.model_bytes)} is unpacked there",
        "give the container more of it",
        "docker run --shm-size 2g",
        demand.model_bytes / max(1, facts.shm_free),
        evidence,
    )


@MACHINE("CS-FILES-LIMIT")
def files(facts: MachineFacts) -> Verdict:
    """Judge the limit of open files against the pipes of the workers and the connections."""
    needed = max(_FEWEST_FILES, _FILES_OF_WORKER * (facts.demand.workers if facts.demand else 1))
    evidence = {"limit": facts.open_files, "needed": needed}
    if facts.open_files >= needed:
        return Verdict("ok", f"{facts.open_files:,} open files are allowed", evidence=evidence)
    return Verdict(
        "warn",
        f"{facts.open_files:,} open files are allowed: many workers or connections end with 'Too many open files'",
        f"allow {needed:,} or more",
        f"ulimit -n {needed}",
        needed / facts.open_files,
        evidence,
    )


@MACHINE("CS-DISK-LEFT")
def disk(facts: MachineFacts) -> Verdict:
    """Judge the free room for logs, models and the append-only file of the embedded Redis."""
    evidence = {"free_bytes": facts.disk_free, "total_bytes": facts.disk_total}
    if facts.disk_free >= min(_DISK_SHARE * facts.disk_total, _DISK_BYTES):
        return Verdict("ok", f"{size(facts.disk_free)} of disk free", evidence=evidence)
    return Verdict(
        "fail" if facts.disk_free < _DISK_FULL else "warn",
        f"{size(facts.disk_free)} of disk free: with a full disk the embedded Redis refuses every record",
        "free some room, or set CLUSTER_SERVING_HOME to a larger disk",
        "df -h",
        facts.disk_total / max(1, facts.disk_free),
        evidence,
    )


def size(count: int) -> str:
    """Return a number of bytes for people, as in `4.8 MB`."""
    if count < 1000:
        return f"{count} bytes"
    exponent = min((len(str(count)) - 1) // 3, 4)
    value = count / 1000**exponent
    return f"{value:.{0 if value >= 10 else 1}f} {('kB', 'MB', 'GB', 'TB')[exponent - 1]}"
