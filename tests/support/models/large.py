"""A model for tests with large outputs: each row of one value gives 80,000 of it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """320 KB a row; the file does not tell."""

    inputs = [("x", "float32", (None, 1))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, None))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Repeat."""
        return {"y": np.repeat(batch["x"], 80_000, axis=1)}
