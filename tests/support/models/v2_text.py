"""A model for tests that takes and gives text."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """Each text in capitals, its first and last letter, and its length."""

    inputs = [("text", "str", (None,))]  # noqa: RUF012 - read only
    outputs = [  # noqa: RUF012 - read only
        ("upper", "str", (None,)),
        ("ends", "str", (None, 2)),
        ("length", "int64", (None,)),
    ]

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute."""
        texts = batch["text"]
        return {
            "upper": np.array([text.upper() for text in texts], object),
            "ends": np.array([[text[:1], text[-1:]] for text in texts], object),
            "length": np.array([len(text) for text in texts], np.int64),
        }
