"""A machine, a Redis and a job on which `doctor` finds nothing, for tests that spoil one fact at a time."""

from pathlib import Path
from typing import Any

from cluster_serving.client.keys import WIRE
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.load import Load
from cluster_serving.node.doctor.job_facts import JobFacts
from cluster_serving.node.doctor.machine_facts import Demand, MachineFacts, read_machine
from cluster_serving.node.doctor.redis_facts import RedisFacts
from support.heartbeats import described
from support.machines import Machine, control_groups

V2 = {"": ("/", "/sys/fs/cgroup")}
FEW = Demand(workers=2, threads=1, model_bytes=5_000_000, backend="onnx", running=True, throttled=0.0)
FILES = {
    "proc/meminfo": "MemTotal:       16000000 kB\nMemAvailable:   12000000 kB",
    "proc/self/limits": "Limit Soft Hard Units\nMax open files            65536                65536                files",
    "proc/stat": "cpu  100 0 100 1000 0 0 0 0 0 0",
    "dev/shm/.keep": "",
}


def machine(
    root: Path, demand: Demand | None = FEW, groups: dict[str, str] | None = None, **options: Any
) -> MachineFacts:
    """The facts about a machine of four cores with files and control groups; all else is in order."""
    files = FILES | control_groups(V2, {"": "/a"}, groups or {"a/cgroup.procs": ""}) | options.pop("files", {})
    built = Machine(**options, files=files)
    facts = read_machine(demand, root, built.build(root), range(built.count))
    return facts._replace(disk_free=100 << 30, disk_total=200 << 30, libnuma=True, shm_free=1 << 30)


INFO: dict[str, Any] = {
    "redis_version": "7.2.4",
    "role": "master",
    "maxmemory": 4 << 30,
    "maxmemory_policy": "noeviction",
    "used_memory": 1 << 20,
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "connected_clients": 10,
    "maxclients": 10_000,
    "master_repl_offset": 1 << 30,
    "connected_slaves": 0,
}


def server(**changes: Any) -> RedisFacts:
    """The facts about a Redis on this machine; capital letters change the facts, small ones INFO."""
    fields = {name.lower(): value for name, value in changes.items() if name.isupper()}
    info = INFO | {name: value for name, value in changes.items() if not name.isupper()}
    facts = RedisFacts(
        "redis://localhost:6379/0", False, False, info, {}, 1e-4, 2e-4, 0.0, (), "0", "madvise", 16 << 30
    )
    return facts._replace(**fields)


def beat(load: Load | None = None, **figures: Any) -> Heartbeat:
    """A heartbeat of a node with two workers."""
    alive = figures.pop("workers_alive", 2)
    return described(
        job="digits",
        node="here",
        wire=WIRE,
        workers=2,
        workers_alive=alive,
        threads=1,
        batch_size=32,
        load=load,
        figures=figures,
    )


def nodes(load: Load | None = None, **figures: Any) -> JobFacts:
    """The facts about a job with one node, which runs."""
    own = beat(load, **figures)
    return JobFacts("digits", True, own, (own,), ())
