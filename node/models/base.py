"""What every backend must have."""

from typing import Any, Protocol

import msgspec
from numpy.typing import NDArray

Array = NDArray[Any]


class TensorSpec(msgspec.Struct, frozen=True):
    """One input or output of a model: `shape` includes the batch dimension, `None` is a free dimension."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    @property
    def row_shape(self) -> tuple[int | None, ...]:
        """The shape of one row: without the batch dimension."""
        return self.shape[1:]

    @property
    def is_text(self) -> bool:
        """Whether this input or output holds strings."""
        return self.dtype == "str"

    def describe(self) -> str:
        """For people: `data float32 [N,3,227,227]`."""
        return f"{self.name} {self.kind}"

    @property
    def kind(self) -> str:
        """For people: `float32 [N,3,227,227]`; a free first dimension is N, others are ?."""
        dims = [
            "N" if dim is None and at == 0 else "?" if dim is None else str(dim) for at, dim in enumerate(self.shape)
        ]
        return f"{self.dtype} [{','.join(dims)}]"


class Backend(Protocol):
    """A loaded model. It lives in one worker and is called by one thread."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once.

        Args:
            batch: for each input its array, rows first: C order, the dtype of its spec. Valid only during the call.

        Returns:
            For each output its array, rows first, in the order of `outputs`.
        """
        ...


class ModelError(Exception):
    """The model cannot be loaded; the message says which file is at fault and how to mend it."""
