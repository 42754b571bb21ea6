"""What a model takes and gives, and whether a value fits."""

import math
import re
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from cluster_serving.client.errors import CodecError

Array = NDArray[Any]

MAX_DENSE_BYTES = 1 << 28
"""No tensor is made larger than this by converting it, or by making a sparse one dense."""

_SPEC = re.compile(r"(?P<name>\S+)(?:\s+(?P<dtype>\w+))?(?:\s*\[(?P<dims>[^\[\]]*)\])?")
_NUMBERS = "biuf"


class TensorSpec(msgspec.Struct, frozen=True):
    """One input or output of a model.

    `dtype` is that of numpy, or "str" for text. `shape` includes the batch dimension; a dimension of `None` is free, and a
    shape of `None` is not known: any number of dimensions, the batch dimension first.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def row_shape(self) -> tuple[int | None, ...] | None:
        """The shape of one row: without the batch dimension."""
        return None if self.shape is None else self.shape[1:]

    @property
    def row_bytes(self) -> int:
        """What one row takes; 0 where that depends on the record."""
        shape = self.row_shape
        if self.is_text or shape is None or None in shape:
            return 0
        return np.dtype(self.dtype).itemsize * math.prod(dim or 0 for dim in shape)

    @property
    def batch(self) -> int | None:
        """The one batch size that the model was made for, if it was."""
        return self.shape[0] if self.shape else None

    @property
    def is_text(self) -> bool:
        """Whether this input or output holds strings."""
        return self.dtype == "str"

    def describe(self) -> str:
        """For people: `data float32 [N,3,227,227]`; `parse` reads it."""
        return f"{self.name} {self.kind}"

    @property
    def kind(self) -> str:
        """For people: `float32 [N,3,227,227]`; a free first dimension is N, others are ?, an unknown shape is [N,...]."""
        if self.shape is None:
            return f"{self.dtype} [N,...]"
        dims = [
            "N" if dim is None and at == 0 else "?" if dim is None else str(dim) for at, dim in enumerate(self.shape)
        ]
        return f"{self.dtype} [{','.join(dims)}]"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `ids`, `ids int64` or `ids int64 [N,12]`: float32 and an unknown shape unless stated.

        Raises:
            ValueError: it is none of these.
        """
        match = _SPEC.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not of the form: name dtype [N,3,224,224]")
        try:
            dtype = np.dtype(match["dtype"] or "float32")
        except TypeError as error:
            raise ValueError(f"{text!r}: there is no dtype {match['dtype']}") from error
        if dtype.kind not in _NUMBERS and dtype.name != "str":
            raise ValueError(f"{text!r}: {match['dtype']} is neither numbers nor str")
        return cls(match["name"], dtype.name, _shape(match["dims"], text))

    def is_row(self, shape: tuple[int, ...], already_batched: bool = False) -> bool:
        """Whether a tensor of this shape is one row, without a batch dimension; `already_batched` says that none is."""
        return not already_batched if self.row_shape is None else matches(shape, self.row_shape)

    def fitted(self, array: Array, already_batched: bool = False) -> tuple[int | None, tuple[int, ...]]:
        """The batch dimension that a tensor carries, if it does, and the shape of its rows.

        Raises:
            CodecError: it is neither a row nor a batch of rows.
        """
        row, shape = self.row_shape, array.shape
        if self.is_row(shape, already_batched):
            return None, shape
        if shape and shape[0] > 0 and (row is None or matches(shape[1:], row)):
            return shape[0], shape[1:]
        if row is not None and array.size == 1 and all(dim in (1, None) for dim in row):
            return None, (1,) * len(row)
        if row is None:
            takes = "tensors with a batch dimension (inputAlreadyBatched)"
        else:
            takes = f"{self.dtype} [{','.join('?' if dim is None else str(dim) for dim in row)}] a record"
        raise CodecError(f"input {self.name!r} takes {takes}, not {array.dtype} {list(shape)}")

    def converted(self, array: Array) -> Array:
        """The same values in this dtype.

        Raises:
            CodecError: some would be lost in it.
        """
        dtype = np.dtype(self.dtype)
        if array.nbytes < (nbytes := array.size * dtype.itemsize) > MAX_DENSE_BYTES:
            raise CodecError(
                f"input {self.name!r} takes {dtype}, in which the tensor of {array.dtype} {list(array.shape)} would have "
                f"{nbytes} bytes; at most {MAX_DENSE_BYTES} are made"
            )
        # What numpy calls safe includes whole numbers of 64 bits that a float64 rounds.
        rounds = dtype.kind == "f" and array.dtype.kind in "iu" and array.dtype.itemsize == 8
        if not rounds and np.can_cast(array.dtype, dtype, "safe"):
            return array.astype(dtype)
        with np.errstate(all="ignore"):
            converted = array.astype(dtype)
            if array.dtype.kind == "f" and dtype.kind == "f":
                # Rounding is what a float of fewer bits means; a number that becomes infinite is lost.
                lost = np.isfinite(array) & ~np.isfinite(converted)
            else:
                # The sign too: -1 becomes 2**64 - 1 and comes back.
                lost = (converted.astype(array.dtype) != array) | ((converted < 0) != (array < 0))
        if lost.any():
            example = array[lost].flat[0]
            raise CodecError(f"input {self.name!r} takes {dtype}, and {example} of {array.dtype} would be lost in it")
        return converted


def _shape(dims: str | None, text: str) -> tuple[int | None, ...] | None:
    if dims is None or [dim.strip() for dim in dims.split(",")][1:] == ["..."]:
        return None
    try:
        return tuple(None if dim.strip() in ("N", "?", "None") else int(dim) for dim in dims.split(","))
    except ValueError as error:
        raise ValueError(f"{text!r}: a dimension is a number, N or ?") from error


def matches(shape: tuple[int, ...], row: tuple[int | None, ...]) -> bool:
    """Whether a shape is that of a row, in which `None` is any size."""
    return len(shape) == len(row) and all(want in (None, dim) for dim, want in zip(shape, row, strict=True))
