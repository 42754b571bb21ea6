"""A model for tests: y = 2x + 1 and the row's sum, over rows of four float32. Some values make it misbehave."""

import os
import signal
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

RAISES, KILLS, SLEEPS = -1.0, -2.0, -3.0


class Model:
    """Two outputs; a row that begins with RAISES, KILLS or SLEEPS does that to the worker."""

    inputs = [("x", "float32", (None, 4))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, 4)), ("total", "float64", (None,))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute both outputs."""
        x = batch["x"]
        first = x[:, 0]
        if (first == RAISES).any():
            raise ValueError("a row that raises")
        if (first == KILLS).any():
            os.kill(os.getpid(), signal.SIGKILL)
        if (first == SLEEPS).any():
            time.sleep(0.05)
        return {"y": 2 * x + np.float32(1), "total": x.sum(axis=1, dtype=np.float64)}
