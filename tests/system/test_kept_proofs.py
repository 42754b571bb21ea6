"""A node that starts again runs a model as the verdict says that an earlier start has kept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import InputQueue
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

# The file for the numbers of rows is none that the code names, so that it is no part of the model.
DETECTOR = """
import os
import numpy

class Model:
    inputs = {"x": "float32 [N,4]"}
    outputs = {"y": "float32 [N,4]"}

    def predict(self, batch):
        x = batch["x"]
        with open(os.environ["RUNS"], "a") as file:
            print(len(x), file=file)
        y = numpy.where(x > 100, x, 0)
        y[1:] = 0
        return {"y": y}
"""
ROWS = np.random.default_rng(3).uniform(200, 900, (8, 4)).astype(np.float32)


def answers(node: RunningNode, server: PrivateRedis) -> list[Any]:
    with InputQueue(url=server.url, name=node.job) as queue:
        return list(queue.predict_many([{"x": row} for row in ROWS]))


def test_a_start_removes_what_a_killed_node_left_of_a_model_in_the_making(
    tmp_path: Path, redis_server: PrivateRedis
) -> None:
    left = tmp_path / "state" / ".proofs" / ".int8-left"
    left.mkdir(parents=True)
    (left / "input0.npy").touch()

    with running_node(tmp_path, redis_server, jobName="left", modelPath=str(MODELS / "affine.py")):
        assert not left.exists()


def test_fault_of_live_rows_holds_at_the_next_start_of_any_job(
    tmp_path: Path, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, model = tmp_path / "runs", tmp_path / "model" / "model.py"
    monkeypatch.setenv("RUNS", str(runs))
    model.parent.mkdir()
    model.write_text(DETECTOR)
    config = {"modelPath": str(model), "maxBatchDelayMs": 200}

    with running_node(tmp_path, redis_server, jobName="proofs-1", **config) as node:
        assert node.heartbeat()["batching"] == "rows"  # made-up rows tell nothing
        np.testing.assert_array_equal(answers(node, redis_server), ROWS)
        wait_until(lambda: node.heartbeat()["batching"].startswith("none: row"), "the fault is told")
        fault = node.heartbeat()["batching"]
    runs.write_text("")
    with running_node(tmp_path, redis_server, jobName="proofs-2", modelParallelism=2, **config) as node:
        assert node.heartbeat()["batching"] == fault
        assert sorted(runs.read_text().split()) == [
            "1",
            "1",
            "2",
            "2",
        ]  # a trial and a warm-up of each worker, no proof
        np.testing.assert_array_equal(answers(node, redis_server), ROWS)
        assert set(runs.read_text().split()[4:]) == {"1"}
        assert "rows that share a batch get other results: row" in node.log
    with running_node(tmp_path, redis_server, jobName="proofs-3", batching="rows", **config) as node:
        assert node.heartbeat()["batching"] == f"rows ({fault.removeprefix('none: ')})"
        wait_until(lambda: "together all the same (batching: rows)" in node.log, "the log tells")
    with running_node(tmp_path, redis_server, jobName="proofs-4", accuracyTolerance=0.02, **config) as node:
        assert node.heartbeat()["batching"] == "rows"
