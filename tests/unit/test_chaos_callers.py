"""The parts of the callers that need no Redis: checks, tallies, interrupts, and the clock of a node."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client.errors import ConnectionLost, RecordFailed, ResultTimeout
from cluster_serving.client.wire.result import Result
from cluster_serving.node.chaos.callers.calls import Checks, sample_of
from cluster_serving.node.chaos.callers.kit import Kit
from cluster_serving.node.chaos.callers.tally import Tally
from cluster_serving.node.chaos.clock import Clock
from cluster_serving.node.chaos.learn import Answers


@pytest.fixture
def checks() -> Checks:
    """Checks of two samples: the model doubles them."""
    answers = Answers()
    for sample in (3, 4):
        answers.learn("native", sample, Result("", {"y": np.array([2.0 * sample])}))
    kit = Kit("unix:///a", "job", 1, 1.0, [{}] * 5, [3, 4], answers)
    return Checks("forks", Kit.decode(kit.encode()))


def test_a_kit_is_decoded_as_it_was() -> None:
    inputs = {
        "x": np.arange(6, dtype=">i2").reshape(2, 3),
        "text": np.array([["a"], ["né"]], object),
        "image": b"\xff",
        "name": "n",
    }
    answers = Answers()
    answers.learn("original", 0, Result("", {}, filtered=[[1, 0.5]]))
    kit = Kit("unix:///a", "job", 1, 1.0, [inputs], [0], answers, {"u": ("original", 0)})

    decoded = Kit.decode(kit.encode())

    np.testing.assert_equal(decoded.inputs, kit.inputs)
    assert decoded.answers.right("original", 0, Result("", {}, filtered=[[1, 0.5]]))
    assert (*decoded.sent["u"],) == kit.sent["u"]
    assert decoded[:4] == kit[:4]


def test_an_answer_is_the_model_s_own_or_wrong_or_a_failure(checks: Checks) -> None:
    checks.check(3, np.array([6.0]))
    checks.check(3, np.array([8.0]))
    checks.check(4, RecordFailed("WorkerDied", "killed", "u"))

    assert (checks.tally.right, len(checks.tally.wrong), len(checks.tally.failed)) == (1, 1, 1)


def test_errors_that_faults_cause_are_counted_and_others_are_failures(checks: Checks) -> None:
    for error in (ConnectionLost("gone"), ResultTimeout("no result"), KeyError("twice")):
        with checks.counted():
            raise error

    assert checks.tally.refused == {"ConnectionLost": 1}
    assert checks.tally.failed == ["ResultTimeout: no result", "KeyError: 'twice'"]


def test_a_uri_tells_its_sample_and_never_comes_twice(checks: Checks) -> None:
    uris = [checks.uri(sample) for sample in checks.draw()]

    assert len(set(uris)) == len(uris) == checks.tally.records
    assert {sample_of(uri) for uri in uris} <= {3, 4}


def test_the_tally_of_a_child_is_added() -> None:
    tally = Tally(1, 1, refused={"QueueFull": 1}, left={"a": True})
    tally.add(Tally(2, 1, 1, {"QueueFull": 1}, ["w"], ["f"], {"b": False}))

    assert tally == Tally(3, 2, 1, {"QueueFull": 2}, ["w"], ["f"], {"a": True, "b": False})


def test_a_call_is_interrupted_or_ends() -> None:
    program = """
import time
from random import Random
from cluster_serving.node.chaos.callers.interrupts import interrupted

random = Random(1)
assert interrupted(random, lambda: time.sleep(60))
assert not all(interrupted(random, lambda: None) for _ in range(100))
"""
    subprocess.run([sys.executable, "-P", "-c", program], check=True)  # an interrupt that escapes would end pytest


def test_the_clock_of_a_node_is_set_while_its_processes_run(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    program = "import time; print(time.time(), flush=True); input(); print(time.time(), time.time_ns())"
    command = [sys.executable, "-P", "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clock.environment(os.environ)
    ) as process:
        assert process.stdout is not None
        before_s = float(process.stdout.readline())
        clock.set_forward(3600)
        told, _ = process.communicate("\n")
    after_s, after_ns = told.split()

    assert 3600 <= float(after_s) - before_s < 3700
    assert 3600 <= int(after_ns) / 1e9 - before_s < 3700
