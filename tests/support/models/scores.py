"""A model for tests: the scores of three classes for a row of four float32."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """The softmax of the first three values."""

    inputs = [("x", "float32", (None, 4))]  # noqa: RUF012 - read only
    outputs = [("scores", "float32", (None, 3))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute the scores."""
        powers = np.exp(batch["x"][:, :3])
        return {"scores": np.asarray(powers / powers.sum(axis=1, keepdims=True))}
