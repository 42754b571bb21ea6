"""Processes that hang: a model that never returns, and children that somebody has stopped."""

import math
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import InputQueue, RecordFailed, keys
from support.models import MODELS, poison
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "hung"
BATCH = 8


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the directory in which the model notes the rows of every run."""
    directory = tmp_path_factory.mktemp("model") / "runs"
    directory.mkdir()
    return directory


@pytest.fixture(scope="module")
def shared(server: PrivateRedis, runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    model = shutil.copy(MODELS / "poison.py", runs.parent)
    settings = {"modelPath": str(model), "jobName": JOB, "batchSize": BATCH, "modelParallelism": 2, "runTimeout": 1}
    home = tmp_path_factory.mktemp("node")
    with running_node(home, server, **settings, redisTimeout=500, lease=2) as node:
        yield node
        assert node.stop() == 0


@pytest.fixture
def node(shared: RunningNode) -> RunningNode:
    """The node of all tests, with both workers."""
    shared.settle()
    return shared


@pytest.fixture
def queue(server: PrivateRedis) -> Iterator[InputQueue]:
    with InputQueue(port=server.port, name=JOB) as queue:
        yield queue


def row(value: float) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]:
    return {"x": np.array([value, 0, 0, 0], np.float32)}


def nothing_is_left(server: PrivateRedis) -> bool:
    with server.client() as client:
        return bool(client.xlen(JOB) == 0 and client.xpending(JOB, keys.GROUP)["pending"] == 0)


def times_run(runs: Path) -> Counter[float]:
    """Return how often the model has run each row that a client sent."""
    values = [float(value) for file in runs.iterdir() for value in file.read_text().split()]
    return Counter(value for value in values if value and value.is_integer())  # not of rows that were made up


def test_a_record_that_hangs_the_worker_is_told_so(node: RunningNode, queue: InputQueue) -> None:
    """Its neighbours are answered, and the log says in which line of the model the worker hung."""
    since = len(node.log)

    answers: list[Any] = list(queue.predict_many([row(n if n != 5 else poison.HANGS) for n in range(16)], timeout=300))

    ((place, failure),) = [(n, answer) for n, answer in enumerate(answers) if isinstance(answer, RecordFailed)]
    assert place == 5
    assert failure.code == "WorkerHung"
    assert "longer than runTimeout (1 s), twice" in failure.reason
    assert "hang (" in node.log[since:]
    assert "poison.py:" in node.log[since:]


@pytest.mark.usefixtures("node")
def test_three_kinds_of_poison_among_ten_thousand(server: PrivateRedis, queue: InputQueue, runs: Path) -> None:
    """They alone fail, and no record is run more than log2(batch) + 1 times too often."""
    harm = {1000: poison.HANGS, 3000: poison.KILLS, 7000: poison.RAISES}
    before = times_run(runs)
    with server.client() as client:
        client.delete(keys.dead_key(JOB))

    answers: list[Any] = list(queue.predict_many((row(harm.get(n, n)) for n in range(1, 10_001)), timeout=300))

    failed = {n: answer.code for n, answer in enumerate(answers, 1) if isinstance(answer, RecordFailed)}
    assert failed == {1000: "WorkerHung", 3000: "WorkerDied", 7000: "InferenceFailed"}
    assert all(answer[0] == 2 * n + 1 for n, answer in enumerate(answers, 1) if n not in failed)
    assert nothing_is_left(server)
    with server.client() as client:
        assert client.xlen(keys.dead_key(JOB)) == 3
    times = times_run(runs) - before
    assert len(times) == 10_000
    assert max(times.values()) - 1 <= math.log2(BATCH) + 1


def test_a_stopped_worker_is_replaced(node: RunningNode, queue: InputQueue) -> None:
    since, worker = len(node.log), node.children("worker")[0]
    worker.suspend()

    answers: list[Any] = list(queue.predict_many((row(n) for n in range(2000)), timeout=300))

    assert not [answer for answer in answers if isinstance(answer, RecordFailed)]
    wait_until(lambda: not worker.is_running(), "it is gone")
    assert "hangs, and is killed" in node.log[since:]


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_a_stopped_reader_or_writer_is_replaced(kind: str, node: RunningNode, queue: InputQueue) -> None:
    since, (child,) = len(node.log), node.children(kind)
    child.suspend()

    answers: list[Any] = list(queue.predict_many((row(n) for n in range(100)), timeout=60))

    assert not [answer for answer in answers if isinstance(answer, RecordFailed)]
    assert f"child={kind}" in node.log[since:]
    assert "no sign of life for 5.5 s" in node.log[since:]


def test_an_idle_node_and_a_stopped_one_that_goes_on_are_not_hung(node: RunningNode) -> None:
    """Time that the whole node was stopped counts for nobody."""
    since, restarts = len(node.log), node.heartbeat()["restarts"]
    processes = [*node.children("reader"), *node.children("writer"), *node.children("worker")]

    node.process.send_signal(signal.SIGSTOP)
    for process in processes:
        process.suspend()
    wait_until(lambda: not node.heartbeat_now(), "its heartbeat has expired")
    for process in processes:
        process.resume()
    node.process.send_signal(signal.SIGCONT)
    wait_until(lambda: node.heartbeat().get("state") == "ready", "it is ready again")

    assert node.heartbeat()["restarts"] == restarts
    assert "hangs" not in node.log[since:]


def test_slow_code_of_the_user_is_not_hung_as_long_as_each_record_ends(server: PrivateRedis, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        dedent(
            """
            import time

            class Steps:
                def preprocess(self, record):
                    time.sleep(0.4)
                    return record["x"]

                def postprocess(self, outputs):
                    time.sleep(0.4)
                    return float(outputs["y"][0])
            """
        )
    )
    settings = {"modelPath": str(shutil.copy(MODELS / "poison.py", tmp_path)), "jobName": "slow", "runTimeout": 5}
    settings |= {"processing": f"{tmp_path / 'steps.py'}:Steps", "modelParallelism": 1, "maxBatchDelayMs": 1000}

    with running_node(tmp_path, server, **settings) as node, InputQueue(port=server.port, name="slow") as queue:
        answers = list(queue.predict_many((row(n) for n in range(BATCH)), timeout=60))
        log = node.log

    assert answers == [2 * n + 1 for n in range(BATCH)]
    assert "hangs" not in log
