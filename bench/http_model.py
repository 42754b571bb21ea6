"""The numpy model that every server of `bench.http` serves: x float32 [N,128] -> 256 -> y float32 [N,10], random weights."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """A tiny MLP: what is measured is the serving, not the model."""

    inputs = [("x", "float32", (None, 128))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, 10))]  # noqa: RUF012 - read only

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self._first = random.standard_normal((128, 256), np.float32) / 12
        self._second = random.standard_normal((256, 10), np.float32) / 12

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute y for each row of x."""
        return {"y": np.maximum(batch["x"] @ self._first, 0) @ self._second}
