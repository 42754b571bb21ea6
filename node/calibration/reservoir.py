"""Sample of a stream of rows: each row that has come is in the sample with the same probability."""

from collections.abc import Sequence

import numpy as np

from cluster_serving.node.models.base import Array, TensorSpec
from cluster_serving.node.shadow.live_records import Row


class UnequalRowsError(Exception):
    """Rows have different shapes, and cannot be a batch."""


class Reservoir:
    """Random sample of `size` rows (algorithm R of Vitter: a later row takes the place of a random one).

    Attributes:
        size: number of rows of a full sample.
        seen: number of rows that have come.
        rows: the sample.
    """

    def __init__(self, size: int, seed: int | None = None) -> None:
        self.size = size
        self.seen = 0
        self.rows: list[Row] = []
        self._random = np.random.default_rng(seed)

    @property
    def is_full(self) -> bool:
        """True if the sample has all its rows."""
        return len(self.rows) >= self.size

    def draw(self, places: Sequence[int]) -> list[int]:
        """Count rows that have come, and return the places of the rows to `put` into the sample."""
        drawn: list[int] = []
        for place in places:
            self.seen += 1
            if self._random.random() * self.seen < self.size:
                drawn.append(place)
        return drawn

    def put(self, row: Row) -> None:
        """Put a drawn row into the sample.

        Raises:
            UnequalRowsError: the row has another shape than the rows in the sample.
        """
        if self.rows:
            for name, array in row.items():
                if array.shape != (known := self.rows[0][name].shape):
                    raise UnequalRowsError(
                        f"{name!r} has shape {[*known]} in one record and {[*array.shape]} in another"
                    )
        if self.is_full:
            self.rows[int(self._random.integers(self.size))] = row
        else:
            self.rows.append(row)

    def arrays(self, inputs: Sequence[TensorSpec]) -> dict[str, Array]:
        """Return the sample as an array for each input, with the rows along the batch dimension of the input."""
        return {spec.name: np.stack([row[spec.name] for row in self.rows], spec.batch_axis or 0) for spec in inputs}
