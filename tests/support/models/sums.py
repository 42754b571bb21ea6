"""A model for tests: the sum and the last value of rows of 64 x 64 float32."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """Two outputs, exact for whole numbers."""

    inputs = [("x", "float32", (None, 64, 64))]  # noqa: RUF012 - read only
    outputs = [("total", "float64", (None,)), ("last", "float32", (None,))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute both outputs."""
        x = batch["x"]
        return {"total": x.sum(axis=(1, 2), dtype=np.float64), "last": x[:, -1, -1].copy()}
