"""Work of every peer on records, in its own environment: JPEG files or tokens to rows, rows to logits; the same code for all.

What a server is to do comes in the environment of its processes, so that those which it starts have it too.
"""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
import onnxruntime
from numpy.typing import NDArray

Logits = NDArray[np.float32]  # (images, classes)

SIDE = 224
WAIT_MS = 1
"""Wait of the first record of a batch for others, in servers that take a time for it."""


class Task(NamedTuple):
    """Task of a server.

    Attributes:
        port: where it listens; the two ports behind it are free too.
        model: the ONNX file.
        processes: how many run a copy of the model each, on how many `threads`.
        batch: records in one run, at most; 1: no batches.
    """

    port: int
    model: str
    processes: int
    threads: int
    batch: int

    @property
    def environment(self) -> dict[str, str]:
        """Variables that `read_task` reads."""
        return {_variable(name): str(value) for name, value in self._asdict().items()}


def read_task() -> Task:
    """The task of this process."""
    told = {name: os.environ[_variable(name)] for name in Task._fields}
    model = told.pop("model")
    return Task(model=model, **{name: int(value) for name, value in told.items()})


def _variable(name: str) -> str:
    return f"PEER_{name.upper()}"


class Model:
    """An ONNX model with an image or a text as its input, in ONNX Runtime with the settings that a node gives it."""

    def __init__(self, path: str, threads: int) -> None:
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
        (taken,) = self._session.get_inputs()
        self._input = taken.name
        self._takes_tokens = taken.type == "tensor(int64)"
        cv2.setNumThreads(threads)

    def run(self, records: Sequence[bytes]) -> Logits:
        """The logits of each of these records: JPEG files, or the bytes of int64 tokens."""
        rows: NDArray[Any]
        if self._takes_tokens:
            rows = np.stack([np.frombuffer(record, np.int64) for record in records])
        else:
            rows = np.empty((len(records), 3, SIDE, SIDE), np.float32)
            for row, jpeg in zip(rows, records, strict=True):
                _fill(row, jpeg)
        logits: Any = self._session.run(None, {self._input: rows})[0]
        return np.asarray(logits, np.float32)


def _fill(row: NDArray[np.float32], jpeg: bytes) -> None:
    """Pixels of 0 to 255, BGR, channels first: what a node makes of an image unless told otherwise."""
    image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        raise ValueError(f"not an image: {len(jpeg)} bytes")
    for plane, pixels in zip(row, cv2.split(cv2.resize(image, (SIDE, SIDE))), strict=True):
        plane[...] = pixels
