"""A model for tests that writes down which rows each of its runs has, before a row may harm the worker as in `poison.py`."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TALLY = "TALLY_OF_RUNS"
"""The variable that names the file: a line a run, the second value of each row."""
RAISES, KILLS = -1.0, -2.0


class Model:
    """Gives each row back."""

    inputs = [("x", "float32", (None, 2))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, 2))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Write down, then copy or do harm."""
        x = batch["x"]
        with Path(os.environ[TALLY]).open("a") as tally:
            tally.write(" ".join(str(int(row)) for row in x[:, 1]) + "\n")
        first = set(x[:, 0].tolist())
        if RAISES in first:
            raise ValueError("a row that raises")
        if KILLS in first:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"y": np.array(x)}
