"""A model for tests that cannot be loaded."""

from typing import Any


class Model:
    """Asks for a file that is not there."""

    inputs = [("x", "float32", (None, 2))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, 2))]  # noqa: RUF012 - read only

    def load(self) -> None:
        """Fail."""
        raise FileNotFoundError("no weights here")

    def predict(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Never called."""
        return batch
