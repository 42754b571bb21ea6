"""A model for tests that takes its time: a batch takes as many seconds as the largest first value of its rows."""

import time
from typing import Any

from numpy.typing import NDArray


class Model:
    """Gives each row back."""

    inputs = [("x", "float32", (None, 2))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, 2))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Wait, and copy."""
        time.sleep(float(batch["x"][:, 0].max()))
        return {"y": batch["x"].copy()}
