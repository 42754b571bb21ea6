"""A model for tests that takes exactly four rows at once, of two inputs, one of them an image."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """Mean of a grey image times a weight, plus a bias for each of three."""

    inputs = [("image", "float32", (4, 1, 8, 8)), ("bias", "float32", (4, 3))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (4, 3))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Only whole batches."""
        assert batch["image"].shape == (4, 1, 8, 8)
        assert batch["bias"].shape == (4, 3)
        return {"y": np.asarray(batch["image"].mean(axis=(1, 2, 3))[:, np.newaxis] + batch["bias"])}
