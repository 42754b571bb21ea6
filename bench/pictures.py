"""A model of images that computes next to nothing, for `bench.bottlenecks`."""

from typing import Any

from numpy.typing import NDArray


class Model:
    """Gives the first pixel of each image."""

    inputs = [("image", "float32", (None, 3, 224, 224))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, 3))]  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Look at one pixel of each image."""
        return {"y": batch["image"][:, :, 0, 0].copy()}
