"""A model of images that computes next to nothing, for `bench.bottlenecks` and `bench.images`."""

import os
import time
from typing import Any

from numpy.typing import NDArray

SIDE = 224
SLEEP_S = "BENCH_PICTURES_SLEEP_S"
"""Environment variable: the seconds that each image takes, 0 where it is not set."""


class Model:
    """Gives the first pixel of each image."""

    inputs = [("image", "float32", (None, 3, SIDE, SIDE))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, 3))]  # noqa: RUF012 - read only

    def __init__(self) -> None:
        self._sleep_s = float(os.environ.get(SLEEP_S, "0"))

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Sleep, and look at one pixel of each image."""
        images = batch["image"]
        time.sleep(self._sleep_s * len(images))
        return {"y": images[:, :, 0, 0].copy()}
