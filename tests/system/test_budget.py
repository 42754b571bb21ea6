"""A node that may use less than the machine: a mask of cores, and a control group with a quota, which change while it runs."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from cluster_serving.client import InputQueue, RecordFailed
from cluster_serving.client.process.exit_codes import ExitCode
from cluster_serving.node.topology import cpulist
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
budget.Budget.for_workers = budget.Budget.whole
placement._SMALLEST = 1
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
        """What is started in this block stays in the group."""
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
    """What is started in this block may use one core."""
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, ALL)


@pytest.fixture
def larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(LARGER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))


def masks(node: RunningNode, *kinds: str) -> set[tuple[int, ...]]:
    """The cores of all threads of all children, or of some."""
    return {
        tuple(psutil.Process(thread.id).cpu_affinity() or ())
        for kind in kinds or ("reader", "worker", "writer")
        for child in node.children(kind)
        for thread in child.threads()
    }


def sizes(node: RunningNode) -> list[int]:
    """How many workers have served, one set of them after the other."""
    lines = [line for line in node.log.splitlines() if "event=serving" in line]
    return [int(line.partition("workers=")[2].split()[0]) for line in lines]


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


def test_a_library_that_starts_more_threads_than_it_was_told_to(own_redis: PrivateRedis, tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(MANY_THREADS)
    with running_node(tmp_path, own_redis, modelPath=str(model), jobName=JOB) as node:
        assert node.heartbeat()["threads_computing"] > 2
        assert "over-subscribed: threads wait for each other" in node.log
        assert "threads_per_model=1" in node.log


@pytest.mark.usefixtures("larger")
@pytest.mark.skipif(len(ALL) < 2, reason="there is nothing to choose from with one core")
def test_workers_are_kept_on_cores_of_their_own_and_stay_when_another_number_cannot_be_had(
    own_redis: PrivateRedis, tmp_path: Path
) -> None:
    """Workers of another number would have to load the model, which has gone."""
    model = tmp_path / "model.py"
    model.write_text((MODELS / "affine.py").read_text())
    with running_node(tmp_path, own_redis, **AUTO | {"modelPath": str(model)}) as node:
        workers = {child.pid for child in node.children("worker")}
        assert masks(node, "worker") == {(core,) for core in ALL}
        assert masks(node, "reader", "writer") == {tuple(ALL)}

        model.unlink()
        psutil.Process(node.process.pid).cpu_affinity(ALL[:1])
        wait_until(lambda: "no change; the old model goes on serving" in node.log, "it cannot be changed")

        assert {child.pid for child in node.children("worker")} == workers
        with InputQueue(port=own_redis.port, name=JOB) as queue:
            assert not isinstance(queue.predict({"x": ROW}), RecordFailed)
        assert node.log.count("another share of the machine") == 1


@pytest.mark.usefixtures("larger")
@pytest.mark.skipif(len(ALL) < 2, reason="there is nothing to choose from with one core")
def test_workers_follow_the_quota_and_no_record_is_lost(own_redis: PrivateRedis, tmp_path: Path, group: Group) -> None:
    group.limit(1.5)
    with ExitStack() as stack:
        with group.inside():
            node = stack.enter_context(running_node(tmp_path, own_redis, **AUTO))
        queue = stack.enter_context(InputQueue(port=own_redis.port, name=JOB))
        stop, answers = threading.Event(), list[Any]()

        def ask() -> None:
            while not stop.is_set():
                answers.extend(queue.predict_many([{"x": ROW}] * 50))

        asking = threading.Thread(target=ask)
        asking.start()
        group.limit(None)
        wait_until(lambda: sizes(node) == [1, len(ALL)], "there is a worker for each core", 60)
        group.limit(1.5)
        wait_until(lambda: sizes(node) == [1, len(ALL), 1], "there are as few as before", 60)
        stop.set()
        asking.join()

        assert answers
        assert not [answer for answer in answers if isinstance(answer, RecordFailed)]
        assert node.stop() == 0
