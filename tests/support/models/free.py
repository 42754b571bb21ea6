"""A model for tests with a free dimension: each row's sum, and the row repeated as often as its first value says."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """Rows of any length."""

    inputs = [("x", "float32", (None, None))]  # noqa: RUF012 - read only
    outputs = [("total", "float32", (None,)), ("repeated", "float32", (None, None))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Sum and repeat."""
        x = batch["x"]
        return {"total": x.sum(axis=1), "repeated": np.tile(x, (1, int(x[:, 0].max())))}
