"""A node that may use less than the machine: a mask of cores, and a control group with a quota, which change while it runs."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from cluster_serving.client import InputQueue, RecordFailed, keys
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.topology import cpulist
from support.caller import Caller, calling
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "budget"
AUTO = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB, "modelParallelism": "auto", "threadPerModel": "auto"}
ROW = np.ones(4, np.float32)
ALL = sorted(os.sched_getaffinity(0))
V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")

# What makes a machine of two cores behave like a larger one: a worker on each core, and each kept on its own.
LARGER = """
from cluster_serving.node.topology import budget, placement
budget.Budget.for_workers = budget.Budget.beside_others = budget.Budget.whole
placement._SMALLEST = 1
"""


# And what makes it one of two NUMA domains, a core each; the second one has no memory that the kernel knows of.
TWO_DOMAINS = f"""
from cluster_serving.node.topology import machine
machine._domains = lambda nodes: {dict(zip(ALL, (0, 1), strict=False))}
"""


# Six threads that compute at a time, whatever it is told.
MANY_THREADS = """
from concurrent.futures import ThreadPoolExecutor
from hashlib import pbkdf2_hmac

class Model:
    inputs = [("x", "float32", (None, 4))]
    outputs = [("y", "float32", (None, 4))]
    pool = ThreadPoolExecutor(6)

    def predict(self, batch):
        list(self.pool.map(lambda _: pbkdf2_hmac("sha256", b"a", b"b", 20_000), range(6)))
        return {"y": batch["x"]}
"""


class Group:
    """A control group of the test's own."""

    def __init__(self, around: Path, joins: str) -> None:
        self._directory = around / f"cluster-serving-test-{os.getpid()}"
        self._joins = joins
        self._directory.mkdir()

    @classmethod
    def new(cls) -> "Group":
        """One in which a quota can be set."""
        if (V1 / "cpu.cfs_quota_us").exists():
            return cls(V1, "tasks")
        if "cpu" in cpulist.text_of(V2 / "cgroup.subtree_control").split():
            return cls(V2, "cgroup.procs")
        raise OSError("no control groups for processor time")

    def limit(self, cores: float | None) -> None:
        """Set the quota."""
        if self._joins == "tasks":
            (self._directory / "cpu.cfs_quota_us").write_text(str(-1 if cores is None else round(cores * 100_000)))
        else:
            (self._directory / "cpu.max").write_text(f"{'max' if cores is None else round(cores * 100_000)} 100000")

    @contextmanager
    def inside(self) -> Generator[None]:
        """Keep processes started in this block in the group."""
        (self._directory / self._joins).write_text(str(os.getpid()))
        try:
            yield
        finally:
            (self._directory.parent / self._joins).write_text(str(os.getpid()))

    def remove(self) -> None:
        """The last process in it has ended, or is about to."""
        wait_until(self._removed, "the group is empty")

    def _removed(self) -> bool:
        try:
            self._directory.rmdir()
        except OSError:
            return False
        return True


@pytest.fixture
def group() -> Generator[Group]:
    try:
        made = Group.new()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield made
    made.remove()


@contextmanager
def only(core: int) -> Generator[None]:
    """Let processes started in this block use this core only."""
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, ALL)


@pytest.fixture
def larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(LARGER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "python"), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def two_domains(larger: None, tmp_path: Path) -> None:
    (tmp_path / "python" / "sitecustomize.py").write_text(LARGER + TWO_DOMAINS)


def masks(node: RunningNode, *kinds: str) -> set[tuple[int, ...]]:
    """The cores of all threads of all children, or of some."""
    children = (child for kind in kinds or ("reader", "worker", "writer") for child in node.children(kind))
    return {mask_of(psutil.Process(thread.id)) for child in children for thread in child.threads()}


def mask_of(process: psutil.Process) -> tuple[int, ...]:
    return tuple(process.cpu_affinity() or ())


def has_workers(node: RunningNode, count: int) -> bool:
    """Return whether so many workers serve, and no other worker is left."""
    beat = node.heartbeat()
    return (beat["workers"], beat["workers_alive"], len(node.children("worker"))) == (count, count, count)


def finish(caller: Caller) -> None:
    caller.stop()
    wait_until(lambda: caller.finished, "every call has been answered")
    assert caller.failure is None


def placement(node: RunningNode, home: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "status", "--placement", *options, node.job]
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(home / "state")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.skipif(len(ALL) < 2, reason="one core alone has no mask")
def test_a_mask_from_outside_holds_for_all_processes_and_is_followed(own_redis: PrivateRedis, tmp_path: Path) -> None:
    core = ALL[1]
    with ExitStack() as stack:
        with only(core):
            node = stack.enter_context(running_node(tmp_path, own_redis, **AUTO))

        beat = node.heartbeat()
        assert (beat["workers"], beat["threads"], beat["budget"]) == (1, 1, f"1 core ({core})")
        assert "1 worker x 1 thread, not measured: cluster-serving tune finds the best" in node.log
        assert masks(node) == {(core,)}
        found: dict[str, Any] = json.loads(placement(node, tmp_path, "--json").stdout)
        assert {tuple(process["cores"]) for process in found["processes"]} == {(core,)}
        assert sorted(process["kind"] for process in found["processes"]) == ["reader", "supervisor", "worker", "writer"]
        assert f"{JOB} supervisor {node.process.pid}" in placement(node, tmp_path).stdout

        psutil.Process(node.process.pid).cpu_affinity(ALL)
        wait_until(lambda: masks(node) == {tuple(ALL)}, "all processes may use all cores")
        assert node.stop() == 0
        assert placement(node, tmp_path).returncode == ExitCode.NOT_RUNNING


def test_more_threads_than_the_quota_has_time_for(own_redis: PrivateRedis, tmp_path: Path, group: Group) -> None:
    group.limit(1.5)
    with ExitStack() as stack:
        with group.inside():
            node = stack.enter_context(running_node(tmp_path, own_redis, **AUTO | {"modelParallelism": 2}))

        assert node.heartbeat()["budget"].startswith("1.5 of ")
        assert "over-subscribed: more threads than cores" in node.log
        assert masks(node) == {tuple(ALL)}


def test_start_warns_of_more_threads_than_cores(own_redis: PrivateRedis, tmp_path: Path) -> None:
    def command(*words: str) -> "subprocess.CompletedProcess[str]":
        arguments = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words]
        environment = os.environ | {"CLUSTER_SERVING_HOME": str(tmp_path)}
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120, check=True)

    workers = len(ALL) + 1
    options = [f"--model-path={AUTO['modelPath']}", f"--redis-url={own_redis.url}", f"--job-name={JOB}"]
    try:
        started = command("start", *options, f"--parallelism={workers}", "--omp=1")

        assert started.stderr.startswith("Warning: over-subscribed: more threads than cores; lower modelParallelism")
        assert f"({workers} workers x 1 thread on {len(ALL)} core" in started.stderr
    finally:
        command("stop", JOB)


def test_a_library_that_starts_more_threads_than_it_was_told_to(own_redis: PrivateRedis, tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(MANY_THREADS)
    with running_node(tmp_path, own_redis, modelPath=str(model), jobName=JOB) as node:
        assert node.heartbeat()["threads_computing"] > 2
        assert "over-subscribed: threads wait for each other" in node.log
        assert "threads_per_model=1" in node.log


@pytest.mark.usefixtures("larger")
@pytest.mark.skipif(len(ALL) < 2, reason="there is nothing to choose from with one core")
def test_workers_come_and_go_with_the_cores_and_are_kept_on_cores_of_their_own(
    own_redis: PrivateRedis, tmp_path: Path
) -> None:
    """In the same lane: who stays serves all the time, also when another one cannot be had, whose model has gone."""
    model = tmp_path / "model.py"
    model.write_text(source := (MODELS / "affine.py").read_text())
    with running_node(tmp_path, own_redis, **AUTO | {"modelPath": str(model)}) as node:
        (first,) = [child.pid for child in node.children("worker") if child.name() == "worker-0"]
        reader, writer = node.children("reader")[0].pid, node.children("writer")[0].pid
        assert masks(node, "worker") == {(core,) for core in ALL}
        assert masks(node, "reader", "writer") == {tuple(ALL)}

        psutil.Process(node.process.pid).cpu_affinity(ALL[:1])
        wait_until(lambda: has_workers(node, 1), "the others have gone")
        model.unlink()
        psutil.Process(node.process.pid).cpu_affinity(ALL)
        wait_until(lambda: "event=died" in node.log, "a new one cannot load the model")
        with InputQueue(port=own_redis.port, name=JOB) as queue:
            assert not isinstance(queue.predict({"x": ROW}, timeout=60), RecordFailed)
        assert node.heartbeat()["state"] == "ready"
        model.write_text(source)
        wait_until(lambda: has_workers(node, len(ALL)), "there is a worker for each core again")

        assert masks(node, "worker") == {(core,) for core in ALL}
        assert first in {child.pid for child in node.children("worker")}
        assert (node.children("reader")[0].pid, node.children("writer")[0].pid) == (reader, writer)
        assert node.log.count("event=serving") == 1


@pytest.mark.usefixtures("larger")
@pytest.mark.skipif(len(ALL) < 2, reason="there is nothing to choose from with one core")
def test_workers_follow_the_quota_and_no_record_is_lost(own_redis: PrivateRedis, tmp_path: Path, group: Group) -> None:
    group.limit(1.5)
    with ExitStack() as stack:
        with group.inside():
            node = stack.enter_context(running_node(tmp_path, own_redis, **AUTO))
        caller = stack.enter_context(calling(own_redis, JOB))
        for _ in range(2):
            group.limit(None)
            wait_until(lambda: has_workers(node, len(ALL)), "there is a worker for each core")
            group.limit(1.5)
            wait_until(lambda: has_workers(node, 1), "there are as few as before")
        finish(caller)

        wait_until(lambda: node.heartbeat()["answered"] == caller.answers, "all are counted")
        beat = node.heartbeat()
        assert (beat["failed"], beat["repeated"], beat["restarts"]) == (0, 0, 0)
        assert node.stop() == 0


@pytest.mark.usefixtures("two_domains")
@pytest.mark.skipif(len(ALL) < 2, reason="there is nothing to choose from with one core")
def test_a_lane_on_each_domain_while_there_is_a_worker_for_it(
    own_redis: PrivateRedis, tmp_path: Path, group: Group
) -> None:
    with ExitStack() as stack:
        with group.inside():
            node = stack.enter_context(running_node(tmp_path, own_redis, **AUTO))
        for kind in ("reader", "worker", "writer"):
            assert {mask_of(child) for child in node.children(kind)} == {(core,) for core in ALL[:2]}
        lines = placement(node, tmp_path).stdout.splitlines()
        caller = stack.enter_context(calling(own_redis, JOB))

        group.limit(1.5)
        wait_until(lambda: has_workers(node, 1), "there is one lane")
        wait_until(caller.more(), "calls are answered")
        group.limit(None)
        wait_until(lambda: has_workers(node, 2), "there are two again")
        wait_until(caller.more(), "calls are answered")
        finish(caller)

        assert [line.strip().split("  ")[0] for line in lines if "NUMA" in line] == [
            f"NUMA domain {number}, lane {number}" for number in (0, 1)
        ]
        beat = node.heartbeat()
        assert (beat["failed"], beat["repeated"], beat["restarts"]) == (0, 0, 0)
        assert node.stop() == 0
        with own_redis.client() as client:
            assert client.xinfo_consumers(JOB, keys.GROUP) == []


@pytest.mark.usefixtures("larger")
@pytest.mark.skipif(len(ALL) < 2, reason="there is nothing to choose from with one core")
def test_workers_of_another_number_of_threads_take_over_from_the_old_ones(
    own_redis: PrivateRedis, tmp_path: Path
) -> None:
    with running_node(tmp_path, own_redis, **AUTO | {"modelParallelism": 1}) as node:
        assert node.heartbeat()["threads"] == len(ALL)

        psutil.Process(node.process.pid).cpu_affinity(ALL[:1])

        wait_until(lambda: node.heartbeat()["threads"] == 1, "there is one thread")
        wait_until(lambda: node.log.count("event=serving") == 2, "the new worker serves")
        with InputQueue(port=own_redis.port, name=JOB) as queue:
            assert not isinstance(queue.predict({"x": ROW}, timeout=60), RecordFailed)
