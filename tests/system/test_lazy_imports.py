"""A node imports the framework of its model and no other, and a worker nothing that only its neighbours need."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client import InputQueue
from support.private_redis import PrivateRedis
from support.running_node import running_node

MODEL = Path(__file__).resolve().parents[2] / "node" / "quickstart" / "model"
FRAMEWORKS = {"torch", "tensorflow", "keras", "openvino", "onnxruntime", "cv2"}


def imports(log: str) -> list[str]:
    return re.findall(r"^import time:.*\| +([\w.]+)", log, re.MULTILINE)


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python itself writes each module to stderr as it enters sys.modules, in the supervisor and in every child."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")


@pytest.mark.usefixtures("telling")
def test_first_tensor_waits_for_no_import(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """The reader's import of pyarrow takes 0.03 to 0.1 s, in a new node and in a new lane during a change."""
    with (
        running_node(tmp_path, redis_server, modelPath=str(MODEL)) as node,
        InputQueue(port=redis_server.port, name=node.job) as queue,
    ):
        before = len(imports(node.log))
        queue.predict({"image": np.zeros((1, 8, 8), np.float32)}, timeout=60)
        imported = {name.partition(".")[0] for name in imports(node.log)[before:]}

    assert not imported & {"pyarrow", "numpy", "onnxruntime"}


@pytest.mark.usefixtures("telling")
def test_an_onnx_job_imports_onnx_runtime_alone(redis_server: PrivateRedis, tmp_path: Path) -> None:
    with running_node(tmp_path, redis_server, modelPath=str(MODEL)) as node:
        imported = {name.partition(".")[0] for name in imports(node.log)}

    assert {"cluster_serving", "redis", "numpy"} <= imported
    assert imported & FRAMEWORKS == {"onnxruntime"}
    assert "tensorboard" not in imported
    # structlog and redis would import these, where they are installed.
    assert not re.search(r"\| +(rich|opentelemetry\.context)\.", node.log)


def test_a_worker_imports_no_redis() -> None:
    program = "import sys, cluster_serving.node.worker.worker; print(*sys.modules)"

    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)

    imported = set(ran.stdout.split())
    assert "cluster_serving.node.worker.worker" in imported
    assert not imported & {"redis", "hiredis"}
