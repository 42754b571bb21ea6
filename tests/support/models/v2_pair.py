"""A model for tests with two inputs and several outputs, of several dtypes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

RAISES = -1


class Model:
    """Sum and difference of two rows, where they are equal, and the first number."""

    inputs = [("a", "int32", (None, 4)), ("b", "float32", (None, 4))]  # noqa: RUF012 - read only
    outputs = [  # noqa: RUF012 - read only
        ("sum", "float32", (None, 4)),
        ("difference", "float64", (None, 4)),
        ("equal", "bool", (None, 4)),
        ("first", "int32", (None,)),
    ]

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute; a row that begins with RAISES does."""
        a, b = batch["a"], batch["b"]
        if (a[:, 0] == RAISES).any():
            raise ValueError("a row that raises")
        return {
            "sum": a.astype(np.float32) + b,
            "difference": a - b.astype(np.float64),
            "equal": np.asarray(a == b),
            "first": a[:, 0].copy(),
        }
