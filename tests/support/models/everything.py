"""A model for tests that takes every kind of input there is, by the names of the original's guide."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Model:
    """Gives the sum of each input of numbers (of the sparse one a value), what those of text say, and the image's first pixel."""

    inputs = [  # noqa: RUF012 - read only
        ("intScalar", "int32", (None,)),
        ("floatScalar", "float32", (None,)),
        ("stringScalar", "str", (None,)),
        ("intTensor", "int32", (None, 10)),
        ("floatTensor", "float32", (None, 10)),
        ("stringTensor", "str", (None, 3)),
        ("intTensor2", "int64", (None, 3, 2)),
        ("floatTensor2", "float32", (None, 2, 2, 2)),
        ("stringTensor2", "str", (None, 1, 1, 2, 2)),
        ("sparseTensor", "float32", (None, 100, 1000)),
        ("image", "uint8", (None, None, None, 3)),
    ]
    outputs = [  # noqa: RUF012 - read only
        ("sums", "float64", (None, 7)),
        ("said", "str", (None, 3)),
        ("pixel", "uint8", (None, 3)),
    ]

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Look at every input."""
        rows = len(batch["image"])
        flat = {name: values.reshape(rows, -1) for name, values in batch.items()}
        sums = [values.sum(axis=1, dtype=np.float64) for values in flat.values() if values.dtype != object]
        said = [[" ".join(row) for row in values] for values in flat.values() if values.dtype == object]
        corner = batch["sparseTensor"][:, 4, 4].astype(np.float64)
        return {
            "sums": np.stack([*sums[:-2], corner], axis=1),
            "said": np.array(said, object).T,
            "pixel": batch["image"][:, 0, 0].copy(),
        }
