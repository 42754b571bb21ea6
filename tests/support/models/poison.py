"""A model for tests: y = 2x + 1, over rows of four float32. A row that begins with one of some values harms the worker.

A directory `runs` beside a copy of this file gets a file from each process, with a line for each run: how each row begins.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RAISES, KILLS, HANGS, GROWS = -1.0, -2.0, -3.0, -4.0
GROWTH_BYTES = 64 << 20


class Model:
    """One output; GROWS makes the worker's memory larger for good."""

    inputs = [("x", "float32", (None, 4))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, 4))]  # noqa: RUF012 - read only

    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        self._runs = Path(__file__).with_name("runs")
        self._notes = self._runs.is_dir()

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute the output, or do harm."""
        x = batch["x"]
        first = set(x[:, 0].tolist())
        if self._notes:
            with (self._runs / str(os.getpid())).open("a") as file:
                file.write(" ".join(map(str, x[:, 0].tolist())) + "\n")
        if RAISES in first:
            raise ValueError("a row that raises")
        if KILLS in first:
            os.kill(os.getpid(), signal.SIGKILL)
        if HANGS in first:
            hang()
        if GROWS in first:
            self._kept.append(bytearray(b"x") * GROWTH_BYTES)
        return {"y": 2 * x + np.float32(1)}


def hang() -> None:
    """Never return."""
    while True:
        time.sleep(60)
