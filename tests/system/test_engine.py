"""A node that chooses its runtime, and one whose answers are compared with float32 while it serves."""

import json
import os
import re
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from cluster_serving.client import InputQueue
from cluster_serving.node.engines.precision import has_bfloat16
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "engine"
WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3)


def write_dense(path: Path) -> Path:
    """A model of x float32 [N,4] to y = x @ WEIGHTS."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weights"], ["y"])],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(WEIGHTS, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def status(home: Path) -> dict[str, Any]:
    """Return the report of `status --json` about the one job."""
    command = [sys.executable, "-m", "cluster_serving.node.cli", "status", JOB, "--json"]
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(home)}
    said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    (report,) = json.loads(said.stdout)
    return dict(report)


def test_all_workers_run_what_the_first_one_chose(
    redis_server: PrivateRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is started again; and no engine leaves a trace of telemetry in the home."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CI", raising=False)
    model = write_dense(tmp_path / "dense.onnx")
    settings = {"modelPath": str(model), "jobName": JOB, "modelParallelism": 2, "batchSize": 8}
    # Beside the config file; and nothing but float32 is as exact as this.
    settings |= {"engine": "auto", "precision": "auto", "calibrationData": "rows.npy", "accuracyTolerance": 1e-5}
    rows = np.random.default_rng(1).random((40, 4), np.float32)
    (tmp_path / "node").mkdir()
    np.save(tmp_path / "node" / "rows.npy", rows)
    with running_node(tmp_path / "node", redis_server, **settings) as node:
        beat = node.heartbeat()
        with InputQueue(port=redis_server.port, name=JOB) as queue:
            before = list(queue.predict_many({"x": row} for row in rows))
            node.children("worker")[0].send_signal(signal.SIGKILL)
            wait_until(lambda: node.heartbeat().get("restarts") == 1, "the worker is started again")
            wait_until(lambda: node.heartbeat().get("workers_alive") == 2, "the worker is ready again")
            after = list(queue.predict_many({"x": row} for row in rows))
        told = status(tmp_path / "node" / "state")

    (line,) = [line for line in node.log.splitlines() if "runtime chosen" in line]
    tried = {(each["engine"], each["precision"]): each for each in beat["candidates"]}
    assert (beat["engine"], beat["precision"]) in tried
    assert beat["precision"] == "f32"
    assert re.search(rf'"runtime chosen" engine={beat["engine"]} precision=f32', line)
    assert node.log.count("runtime tried") == len(tried) == len(beat["candidates"]) >= 2
    assert tried["native", "f32"]["relative_error"] == 0
    assert tried["openvino", "f32"]["relative_error"] < 1e-5
    if has_bfloat16():
        assert "accuracyTolerance is 1e-05" in tried["openvino", "bf16"]["refused"]
    assert (told["candidates"], told["precision"]) == (beat["candidates"], "f32")
    answers: Any
    for answers in (before, after):
        np.testing.assert_allclose(np.stack(answers), rows @ WEIGHTS, rtol=1e-5)
    assert list(home.iterdir()) == []


def test_data_that_are_not_there_stop_the_node_before_it_serves(redis_server: PrivateRedis, tmp_path: Path) -> None:
    model = write_dense(tmp_path / "dense.onnx")
    settings = {"modelPath": str(model), "jobName": JOB, "precision": "auto", "engine": "auto"}

    with pytest.raises(AssertionError, match=r"calibrationData \S+/node/rows.npz: No such file or directory"):
        RunningNode(tmp_path / "node", redis_server, calibrationData="rows.npz", **settings)


def compared_of(node: RunningNode, queue: InputQueue, records: int, sent: int = 0) -> int:
    """Send records until a fifth of so many more has been compared; all agree, and never more than a fifth is compared.

    A heartbeat may count a record as compared that it does not yet count as agreeing.

    Returns:
        Number of records that have been sent, with the `sent` ones. The node counts a record after its answer.
    """
    before = node.heartbeat()["shadowed"]
    values = count()

    def predict() -> None:
        queue.predict({"x": np.full(4, next(values), np.float32)}, timeout=60)

    def beat() -> dict[str, Any]:
        predict()
        found = node.heartbeat()
        compared = found["shadowed"]
        return found if found["shadow_agreeing"] == compared >= before + records // 5 else {}

    for _ in range(records):
        predict()
    found = wait_until(beat, "a fifth of the records is compared, and all agree")
    sent += next(values)
    assert found["shadowed"] <= sent / 5
    return sent


def test_a_shadow_compares_every_record_and_comes_back_when_it_is_killed(
    redis_server: PrivateRedis, tmp_path: Path
) -> None:
    pytest.importorskip("openvino")
    model = write_dense(tmp_path / "dense.onnx")
    settings = {"modelPath": str(model), "jobName": "shadowed", "engine": "openvino", "shadow": "20%"}
    with (
        running_node(tmp_path / "node", redis_server, **settings) as node,
        InputQueue(port=redis_server.port, name="shadowed") as queue,
    ):
        wait_until(lambda: node.log.count("event=ready child=shadow") == 1, "the shadow is ready")
        sent = compared_of(node, queue, 200)

        (shadow,) = node.children("shadow")
        shadow.send_signal(signal.SIGKILL)
        wait_until(lambda: node.log.count("event=ready child=shadow") == 2, "another shadow is ready")
        compared_of(node, queue, 100, sent)
        assert node.heartbeat()["restarts"] == 0

        def agreeing() -> dict[str, Any]:
            told: dict[str, Any] = node.heartbeat()["shadow"]
            return told if told["agreeing"] == told["records"] >= 60 else {}

        told = wait_until(agreeing, "all agree")
        assert (told["share"], told["nothing"]) == (0.2, "")
        (successor,) = node.children("shadow")
        assert node.stop() == 0
    assert not successor.is_running()


def test_a_model_in_its_own_float32_has_no_shadow(redis_server: PrivateRedis, tmp_path: Path) -> None:
    settings = {"modelPath": str(write_dense(tmp_path / "dense.onnx")), "jobName": "shadowed", "shadow": 0.5}
    with running_node(tmp_path / "node", redis_server, **settings) as node:
        assert 'event="nothing is shadowed" why="the model is served in its native float32"' in node.log
        assert node.heartbeat()["shadow"]["nothing"] == "the model is served in its native float32"
        assert node.children("shadow") == []
