"""A model for tests that takes colour images."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """The mean of each channel: blue, green and red."""

    inputs = [("image", "float32", (None, 3, 8, 8))]  # noqa: RUF012 - read only
    outputs = [("mean", "float32", (None, 3))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute."""
        return {"mean": np.asarray(batch["image"].mean(axis=(2, 3)))}
