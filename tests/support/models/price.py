"""A model for tests: one number for a row of two float32."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """Three times the first and fifty times the second."""

    inputs = [("x", "float32", (None, 2))]  # noqa: RUF012 - read only
    outputs = [("price", "float32", (None,))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute the price."""
        return {"price": batch["x"] @ np.array([3, 50], np.float32)}
