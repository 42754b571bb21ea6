"""A model for chaos that does what models of strangers do: it writes into its inputs, and does not tell the size of its output."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """y = (2 first + second) / 255, repeated to 12 KB unless all is zero. Two inputs tell whether they were exchanged."""

    inputs = [("first", "float32", (None, 4)), ("second", "float32", (None, 4))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, None))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Normalize in place, and compute."""
        first, second = batch["first"], batch["second"]
        first /= 255
        second /= 255
        times = 768 if first.any() else 1  # a warm-up with zeros tells too little
        return {"y": np.tile(2 * first + second, (1, times))}
