"""A node that chooses its engine: one worker compares, and all run what it chose."""

import re
import signal
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from cluster_serving.client import InputQueue
from support.private_redis import PrivateRedis
from support.running_node import running_node
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
    rows = np.random.default_rng(1).random((40, 4), np.float32)
    with running_node(tmp_path / "node", redis_server, engine="auto", **settings) as node:
        beat = node.heartbeat()
        with InputQueue(port=redis_server.port, name=JOB) as queue:
            before = list(queue.predict_many({"x": row} for row in rows))
            node.children("worker")[0].send_signal(signal.SIGKILL)
            wait_until(lambda: node.heartbeat().get("restarts") == 1, "the worker is started again")
            wait_until(lambda: node.heartbeat().get("workers_alive") == 2, "the worker is ready again")
            after = list(queue.predict_many({"x": row} for row in rows))

    (line,) = [line for line in node.log.splitlines() if "engine chosen" in line]
    assert beat["engine"] in ("native", "openvino")
    assert re.search(rf"engine={beat['engine']} native_ms=\S+ openvino_ms=\S+ agree ", line)
    for answers in (before, after):
        np.testing.assert_allclose(np.stack(answers), rows @ WEIGHTS, rtol=1e-5)
    assert list(home.iterdir()) == []
