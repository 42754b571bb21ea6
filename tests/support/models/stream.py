"""A model for tests: a step of a stream, with a state whose rows stand along the second dimension, and a rate for all rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """Each sample times the rate; the state has counted the rows of its calls."""

    inputs = {"x": "float32 [N,4]", "state": "float32 [2,N,3]", "rate": "int64 []"}  # noqa: RUF012 - read only
    outputs = {"y": "float32 [N,4]", "next": "float32 [2,N,3]", "used": "int64 []"}  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute."""
        x, state, rate = batch["x"], batch["state"], batch["rate"]
        return {"y": x * rate, "next": state + 1, "used": np.asarray(rate)}
