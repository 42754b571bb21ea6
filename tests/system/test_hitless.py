"""A node that changes its model or its settings while it serves."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml

from cluster_serving.client import InputQueue, keys
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "hitless"
MODEL = """
import numpy as np

class Model:
    inputs = [("x", "float32", (None, 4))]
    outputs = [("y", "float32", (None, 4))]

    def predict(self, batch):
        return {"y": FACTOR * batch["x"]}
"""


def save_model(directory: Path, factor: int) -> str:
    """A model that multiplies."""
    path = directory / f"times_{factor}.py"
    path.write_text(MODEL.replace("FACTOR", f"np.float32({factor})"))
    return str(path)


@contextmanager
def start(home: Path, server: PrivateRedis) -> Generator[RunningNode]:
    settings = {"modelPath": save_model(home, 2), "jobName": JOB, "modelParallelism": 2, "drainTimeout": 3600}
    with running_node(home / "node", server, **settings) as node:
        yield node


@pytest.fixture
def own_node(own_redis: PrivateRedis, tmp_path: Path) -> Iterator[RunningNode]:
    with start(tmp_path, own_redis) as node:
        yield node


@pytest.fixture(scope="module")
def shared(server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with start(tmp_path_factory.mktemp("shared"), server) as node:
        yield node


@pytest.fixture
def node(shared: RunningNode) -> RunningNode:
    """The node of all tests that leave it serving, with the model that it was started with."""
    shared.settle()
    return shared


class Caller:
    """Calls a node again and again, one call at a time; every answer must be that of one of the models."""

    def __init__(self, server: PrivateRedis, *factors: int) -> None:
        self._server = server
        self._factors = factors
        self.seen: list[int] = []
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.go_on()

    def _run(self) -> None:
        try:
            with InputQueue(port=self._server.port, name=JOB) as queue:
                while not self._stop.is_set():
                    answer = queue.predict(np.ones(4, np.float32), timeout=60)
                    assert answer.tolist() == [answer[0]] * 4
                    assert answer[0] in self._factors
                    self.seen.append(int(answer[0]))
                    self._stop.wait(0.02)  # the cores are for what is tested
        except BaseException as error:
            self._failure = error

    def go_on(self, calls: int = 20) -> None:
        """Wait for so many more answers."""
        wanted = len(self.seen) + calls
        wait_until(lambda: self._failure or len(self.seen) >= wanted, "calls are answered")
        assert self._failure is None

    def see(self, factor: int) -> None:
        """Wait for an answer of this model."""
        wait_until(lambda: self._failure or self.seen[-1] == factor, "the model answers")
        assert self._failure is None

    def finish(self) -> None:
        """Every call was answered."""
        self._stop.set()
        self._thread.join(120)
        assert self._failure is None


def configure(node: RunningNode, **changes: object) -> None:
    """Write other settings into the config file of a node."""
    config = yaml.safe_load(node.config_path.read_text())
    node.config_path.write_text(yaml.safe_dump(config | changes))


def restart(node: RunningNode, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command."""
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(node.config_path.parent / "state")} | environ
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "restart", JOB, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def children(node: RunningNode) -> set[int]:
    return {child.pid for child in psutil.Process(node.process.pid).children()}


def test_sighup_changes_the_model_without_a_failed_call(
    own_node: RunningNode, own_redis: PrivateRedis, tmp_path: Path
) -> None:
    caller = Caller(own_redis, 2, 3, 5)
    old = children(own_node)

    for factor in (3, 2, 3):
        configure(own_node, modelPath=save_model(tmp_path, factor))
        own_node.process.send_signal(signal.SIGHUP)
        caller.see(factor)
        caller.go_on()
    for factor in (2, 5):  # the second comes while the first is under way
        configure(own_node, modelPath=save_model(tmp_path, factor))
        own_node.process.send_signal(signal.SIGHUP)
    caller.see(5)
    wait_until(lambda: len(children(own_node)) == 4, "the old lanes are gone")
    alone = len(caller.seen) + 1  # a call may have been under way
    caller.go_on()
    caller.finish()

    assert set(caller.seen[alone:]) == {5}
    assert not old & children(own_node)
    beat = wait_until(
        lambda: (beat := own_node.heartbeat())["answered"] >= len(caller.seen) and beat, "all are counted"
    )
    assert (beat["restarts"], beat["failed"], beat["repeated"]) == (0, 0, 0)
    assert beat["model"].endswith("times_5.py")
    assert own_node.stop() == 0
    with own_redis.client() as client:
        assert client.xinfo_consumers(JOB, keys.GROUP) == []


def test_restart_changes_settings_and_remembers_them_and_ends_when_only_the_new_model_answers(
    own_node: RunningNode, own_redis: PrivateRedis, tmp_path: Path
) -> None:
    caller = Caller(own_redis, 2, 3)
    environ = {"CLUSTER_SERVING_MODEL_PARALLELISM": "1", "CLUSTER_SERVING_BATCHSISE": "8"}
    options = ("--set", "batchSize=7", "--model-path", save_model(tmp_path, 3))
    with InputQueue(port=own_redis.port, name=JOB) as queue:
        done = restart(own_node, *options, **environ)
        answer = queue.predict(np.ones(4, np.float32), timeout=60)

    assert answer.tolist() == [3] * 4
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("Ignored: CLUSTER_SERVING_BATCHSISE (no such variable; did you mean ")
    assert "beside the old one" in done.stdout
    assert f"Cluster Serving job {JOB} is ready: times_3.py" in done.stdout
    assert "Stop signal" not in done.stdout
    assert psutil.Process(own_node.process.pid).is_running()
    beat = wait_until(lambda: (beat := own_node.heartbeat())["batch_size"] == 7 and beat, "it says so")
    (job,) = (
        path for path in (own_node.config_path.parent / "state").iterdir() if path.is_dir() and path.name != ".proofs"
    )
    assert "--set=batchSize=7" in json.loads((job / "node.json").read_text())["flags"]
    assert sorted(path.name for path in job.iterdir()) == ["lock", "node.json", "node_id", "serving"]
    assert beat["workers"] == 1
    caller.finish()


def test_the_heartbeat_has_the_new_settings_when_restart_ends(own_node: RunningNode) -> None:
    seen: list[int] = []
    for rows in (3, 5, 7):
        done = restart(own_node, "--set", f"batchSize={rows}")
        assert done.returncode == 0, done.stderr
        seen.append(own_node.heartbeat()["batch_size"])

    assert seen == [3, 5, 7]


@pytest.mark.parametrize(
    ("source", "reason", "code"),
    [
        ("raise ValueError('a model that cannot be loaded')", "a model that cannot be loaded", 5),
        ("import os; os._exit(3)", "ended while it started: exit code 3", 1),
    ],
)
def test_a_model_that_does_not_load_changes_nothing(
    source: str, reason: str, code: int, node: RunningNode, server: PrivateRedis, tmp_path: Path
) -> None:
    caller, since = Caller(server, 2), len(node.log)
    old = children(node)
    bad = tmp_path / "bad.py"
    bad.write_text(source)

    done = restart(node, "--model-path", str(bad))

    assert done.returncode == code
    assert reason in done.stderr
    assert "the old model goes on serving" in done.stderr
    assert reason in node.log[since:]
    caller.go_on()
    wait_until(lambda: children(node) == old, "only the old ones are there")
    (job,) = (
        path for path in (node.config_path.parent / "state").iterdir() if path.is_dir() and path.name != ".proofs"
    )
    assert "bad.py" not in (job / "node.json").read_text()
    caller.finish()


def test_a_config_that_is_wrong_changes_nothing(node: RunningNode, server: PrivateRedis) -> None:
    caller, since = Caller(server, 2), len(node.log)
    old = children(node)

    configure(node, jobName="another")
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "jobName or redisUrl has changed" in node.log[since:], "it says why")
    configure(node, jobName=JOB, batchSize=0)
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "batchSize is 0" in node.log[since:], "it says why")

    caller.finish()
    assert children(node) == old
    configure(node, batchSize=32)


def test_a_stop_during_a_change_drains_the_old_and_forgets_the_new(
    own_node: RunningNode, own_redis: PrivateRedis, tmp_path: Path
) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text("import time; time.sleep(60)")
    with InputQueue(port=own_redis.port, name=JOB) as queue:
        queue.enqueue_many((str(n), {"x": np.full(4, n, np.float32)}) for n in range(2000))
    configure(own_node, modelPath=str(slow))
    own_node.process.send_signal(signal.SIGHUP)
    wait_until(
        lambda: "beside" in own_node.log or len(own_node.children("worker")) == 3, "the new model is being loaded"
    )

    assert own_node.stop() == 0

    with own_redis.client() as client:
        assert client.xpending(JOB, keys.GROUP)["pending"] == 0
        assert len(client.keys(keys.result_prefix(JOB) + "*")) + client.xlen(JOB) == 2000
    assert "the node was told to stop" in own_node.log


def test_an_old_lane_whose_worker_dies_while_it_drains_answers_all(
    node: RunningNode, server: PrivateRedis, tmp_path: Path
) -> None:
    caller = Caller(server, 2, 5)
    first, changes = yaml.safe_load(node.config_path.read_text())["modelPath"], node.log.count("event=serving ")
    model = Path(save_model(tmp_path, 5))
    model.write_text(f"import time\ntime.sleep(5)\n{model.read_text()}")
    configure(node, modelPath=str(model))
    old = node.children("worker")
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(node.children("worker")) > 2, "the new model is being loaded")

    for worker in old:
        worker.kill()
    caller.see(5)

    caller.finish()
    configure(node, modelPath=first)
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: node.log.count("event=serving ") == changes + 2, "the first model serves again")


def test_cold_stops_first(own_node: RunningNode, own_redis: PrivateRedis) -> None:
    done = restart(own_node, "--cold")

    assert done.returncode == 0, done.stderr
    assert "Stop signal sent to serving." in done.stdout
    assert own_node.process.wait(120) == 0
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(own_node.config_path.parent / "state")}
    stop = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "stop", JOB]
    assert subprocess.run(stop, env=environment, check=False).returncode == 0
