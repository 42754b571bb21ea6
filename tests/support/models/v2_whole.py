"""A model for tests whose rows depend on each other: for jobs with `inputAlreadyBatched`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """Each row and all before it, added up."""

    inputs = [("x", "float32", (None, 2))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, 2))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute."""
        return {"y": np.cumsum(batch["x"], axis=0, dtype=np.float32)}
