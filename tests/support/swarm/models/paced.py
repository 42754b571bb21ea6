"""A model for tests whose time is a sleep: a batch takes as many seconds as the largest first value of its rows."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """Gives for each row (seconds, number) the number, and the version that `version.txt` beside this file says."""

    inputs = [("x", "float32", (None, 2))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, 2))]  # noqa: RUF012 - read only

    def load(self) -> None:
        """Read the version."""
        self._version = float(Path(__file__).with_name("version.txt").read_text())

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Sleep, and answer."""
        time.sleep(float(batch["x"][:, 0].max()))
        return {"y": np.stack([batch["x"][:, 1], np.full(len(batch["x"]), self._version, np.float32)], axis=1)}
