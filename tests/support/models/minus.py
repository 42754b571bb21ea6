"""A model for tests: a - b, so that an answer tells when the inputs are exchanged."""

from typing import Any

from numpy.typing import NDArray


class Model:
    """Two inputs of two float32 a row."""

    inputs = {"a": "float32 [N,2]", "b": "float32 [N,2]"}  # noqa: RUF012 - read only
    outputs = {"difference": "float32 [N,2]"}  # noqa: RUF012 - read only

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Subtract."""
        return {"difference": batch["a"] - batch["b"]}
