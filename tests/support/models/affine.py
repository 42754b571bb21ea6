"""A model for tests: y = 2x + 1 and the row's sum, over rows of four float32. Some values make it misbehave."""

import os
import signal
from typing import Any

import numpy as np
from numpy.typing import NDArray

RAISES, KILLS = -1.0, -2.0


class Model:
    """Two outputs; a row that begins with RAISES or KILLS does that to the worker."""

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
        return {"y": 2 * x + np.float32(1), "total": x.sum(axis=1, dtype=np.float64)}
