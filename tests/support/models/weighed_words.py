"""A model for tests with an input of text and one of numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """The weights, each times the length of the text."""

    inputs = [("text", "str", (None,)), ("weights", "float32", (None, 5))]  # noqa: RUF012 - read only
    outputs = [("scores", "float32", (None, 5))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute."""
        lengths = np.array([len(text) for text in batch["text"]], np.float32)
        return {"scores": batch["weights"] * lengths[:, None]}
