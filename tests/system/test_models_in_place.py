"""A model that works in the memory of its input: rows that run again after a failure run on what the client sent."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cluster_serving.client import ErrorCode, InputQueue, RecordFailed
from cluster_serving.node.models.torch.files import no_deprecations
from support.private_redis import PrivateRedis
from support.running_node import running_node

JOB = "in_place"
jit: Any = torch.jit  # no types
RAISES, KILLS = -2.0, -4.0
IN_PYTHON = f"""
import os, signal

class Model:
    inputs = [("x", "float32", (None, 4))]
    outputs = [("y", "float32", (None, 4))]

    def predict(self, batch):
        x = batch["x"]
        x /= 2
        if (x == {RAISES / 2}).any():
            raise ValueError("a row that raises")
        if (x == {KILLS / 2}).any():
            os.kill(os.getpid(), signal.SIGKILL)
        return {{"y": x}}
"""


class Halves(torch.nn.Module):
    """Model in PyTorch that halves its input in place, and raises for one row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Halve the input."""
        x.div_(2)
        if bool((x == -1.0).any()):
            raise RuntimeError("a row that raises")
        return x


def write_python(directory: Path) -> None:
    (directory / "model.py").write_text(IN_PYTHON)


def write_script(directory: Path) -> None:
    with no_deprecations():
        jit.save(jit.script(Halves()), str(directory / "model.pt"))


@pytest.mark.parametrize(
    ("write", "bad", "code"),
    [
        (write_python, RAISES, ErrorCode.INFERENCE_FAILED),
        (write_python, KILLS, ErrorCode.WORKER_DIED),
        (write_script, RAISES, ErrorCode.INFERENCE_FAILED),
    ],
)
def test_the_neighbours_of_a_bad_record_are_answered_rightly(
    write: Any, bad: float, code: str, own_redis: PrivateRedis, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    write(tmp_path / "model")
    values = [float(n) for n in range(100, 131)]
    values.insert(13, bad)
    settings = {"modelPath": str(tmp_path / "model"), "batchSize": 32, "maxBatchDelayMs": 500}

    with (
        running_node(tmp_path / "node", own_redis, jobName=JOB, **settings),
        InputQueue(port=own_redis.port, name=JOB) as queue,
    ):
        records = ({"x": np.full(4, value, np.float32)} for value in values)
        answers = list(queue.predict_many(records, timeout=60))

    failed = answers.pop(13)
    assert isinstance(failed, RecordFailed)
    assert failed.code == code
    values.pop(13)
    np.testing.assert_array_equal(answers, [[value / 2] * 4 for value in values])
