"""Inputs and outputs of a model: name, dtype and shape, and the check of a value against them.

Commands read heartbeats, which have inputs and outputs, and need no numpy, which takes 0.1 s to import.
"""

import math
import re
from typing import TYPE_CHECKING, Any, Self

import msgspec

from cluster_serving.client.errors import CodecError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]

MAX_DENSE_BYTES = 1 << 28
"""Most bytes that a tensor may grow to by a dtype conversion, or when a sparse tensor is made dense."""

_SPEC = re.compile(r"(?P<name>\S+)(?:\s+(?P<dtype>\w+))?(?:\s*\[(?P<dims>[^\[\]]*)\])?")
_NUMBERS = "biuf"
_LARGEST_DIM = (1 << 63) - 1


class TensorSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input or output of a model.

    `dtype` is a numpy dtype, or "str" for text. A nested value has "map", or "sequence(<dtype>)" with the dtype of its arrays.
    `shape` includes the batch dimension. A dimension of `None` is free. A shape of `None` is unknown: any number of dimensions.

    `batch_axis` is the place of the batch dimension in `shape`. `None`: there is no batch dimension. An input without a batch
    dimension is shared by the rows of a batch, or belongs to a call that is no batch.

    `takes_bytes`: an input of text takes bytes that are not UTF-8 too.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    batch_axis: int | None = 0
    takes_bytes: bool = False

    @property
    def row_shape(self) -> tuple[int | None, ...] | None:
        """Shape of one row, without the batch dimension."""
        if self.shape is None or self.batch_axis is None:
            return self.shape
        return self.shape[: self.batch_axis] + self.shape[self.batch_axis + 1 :]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, or 0 if the size depends on the record."""
        shape = self.row_shape
        if not self.is_numeric or shape is None or None in shape:
            return 0
        import numpy as np

        return np.dtype(self.dtype).itemsize * math.prod(dim or 0 for dim in shape)

    @property
    def batch(self) -> int | None:
        """Batch size that the model was made for, if the model has a fixed batch size."""
        return self.shape[self.batch_axis] if self.shape and self.batch_axis is not None else None

    def batch_shape(self, rows: int) -> tuple[int, ...] | None:
        """Return the shape of a batch of `rows` rows, or `None` if a row has no certain shape.

        Without a batch axis, a free first dimension has the size 1.
        """
        if self.shape is None:
            return None
        dims = list(self.shape)
        if self.batch_axis is not None:
            dims[self.batch_axis] = rows
        elif dims and dims[0] is None:
            dims[0] = 1
        return None if None in dims else tuple(dim or 0 for dim in dims)

    def take(self, batch: "Array", rows: slice) -> "Array":
        """Return rows of a batch, as a view. A tensor without a batch dimension is returned as it is."""
        return batch if self.batch_axis is None else batch[(slice(None),) * self.batch_axis + (rows,)]

    def rows_of(self, batch: "Array") -> int | None:
        """Return the number of rows of a batch, or `None` without a batch dimension. An array of too low a rank has 0."""
        if self.batch_axis is None:
            return None
        return batch.shape[self.batch_axis] if batch.ndim > self.batch_axis else 0

    @property
    def is_text(self) -> bool:
        """True if the input or output holds strings."""
        return self.dtype == "str"

    @property
    def is_nested(self) -> bool:
        """True if the input or output holds lists or maps of arrays."""
        return self.dtype == "map" or self.dtype.startswith("sequence")

    @property
    def is_numeric(self) -> bool:
        """True if the input or output is an array of numbers."""
        return not self.is_text and not self.is_nested

    def describe(self) -> str:
        """Return a text for people: `data float32 [N,3,227,227]`. `parse` reads the same form."""
        return f"{self.name} {self.kind}"

    @property
    def kind(self) -> str:
        """Dtype and shape for people: `float32 [N,3,227,227]`.

        A free batch dimension is N, any other free dimension is ?, an unknown shape is [N,...] or [...].
        """
        if self.shape is None:
            return f"{self.dtype} [{'...' if self.batch_axis is None else 'N,...'}]"
        dims = [
            "N" if dim is None and at == self.batch_axis else "?" if dim is None else str(dim)
            for at, dim in enumerate(self.shape)
        ]
        return f"{self.dtype} [{','.join(dims)}]"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `ids`, `ids int64` or `ids int64 [N,12]`. The defaults are float32 and an unknown shape.

        The batch dimension stands where the first N stands, else in front. A shape without dimensions, [], has none.

        Raises:
            ValueError: the text has another form.
        """
        import numpy as np

        match = _SPEC.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not of the form: name dtype [N,3,224,224]")
        try:
            dtype = np.dtype(match["dtype"] or "float32")
        except TypeError as error:
            raise ValueError(f"{text!r}: there is no dtype {match['dtype']}") from error
        if dtype.kind not in _NUMBERS and dtype.name != "str":
            raise ValueError(f"{text!r}: {match['dtype']} is neither numbers nor str")
        if match["dims"] is None:
            return cls(match["name"], dtype.name, None)
        dims = [dim.strip() for dim in match["dims"].split(",")] if match["dims"].strip() else []
        if dims == ["..."]:
            return cls(match["name"], dtype.name, None, None)
        if dims[1:] == ["..."]:
            return cls(match["name"], dtype.name, None)
        try:
            shape = tuple(None if dim in ("N", "?", "None") else int(dim) for dim in dims)
            if any(dim is not None and not 0 <= dim <= _LARGEST_DIM for dim in shape):
                raise ValueError(dims)
        except ValueError as error:
            raise ValueError(f"{text!r}: a dimension is a number, N or ?") from error
        axis = dims.index("N") if "N" in dims else 0 if dims else None
        return cls(match["name"], dtype.name, shape, axis)

    def fitted(self, array: "Array") -> tuple[int | None, tuple[int, ...]]:
        """Return the batch dimension of a tensor, or None for a single row, and the shape of one row.

        Raises:
            CodecError: the tensor is neither a row nor a batch of rows.
        """
        row, shape, axis = self.row_shape, array.shape, self.batch_axis
        if row is None or matches(shape, row):
            return None, shape
        if axis is not None and shape[axis:] and shape[axis] > 0:
            dims = shape[:axis] + shape[axis + 1 :]
            if matches(dims, row):
                return shape[axis], dims
        if array.size == 1 and all(dim in (1, None) for dim in row):
            return None, (1,) * len(row)
        takes = f"{self.dtype} [{','.join('?' if dim is None else str(dim) for dim in row)}] a record"
        raise CodecError(f"input {self.name!r} takes {takes}, not {array.dtype} {list(shape)}")

    def widens(self, dtype: "np.dtype[Any]", count: int) -> bool:
        """Return whether an array of `count` numbers converts to the dtype of the input, whatever the numbers are."""
        import numpy as np

        own = np.dtype(self.dtype)
        # numpy calls the cast of 64-bit integers to float64 safe, although float64 rounds large integers.
        rounds = own.kind == "f" and dtype.kind in "iu" and dtype.itemsize == 8
        is_safe = dtype.kind != "m" and np.can_cast(dtype, own, "safe")
        return is_safe and not rounds and not _grows_too_large(dtype, own, count)

    def converted(self, array: "Array") -> "Array":
        """Return the values of an array in the dtype of the input.

        Raises:
            CodecError: the conversion would lose a value, or make a larger tensor than `MAX_DENSE_BYTES`, or the values are no
                numbers.
        """
        import numpy as np

        dtype = np.dtype(self.dtype)
        if _grows_too_large(array.dtype, dtype, array.size):
            raise CodecError(
                f"input {self.name!r} takes {dtype}, in which the tensor of {array.dtype} {list(array.shape)} would have "
                f"{array.size * dtype.itemsize} bytes; at most {MAX_DENSE_BYTES} are made"
            )
        if self.widens(array.dtype, array.size):
            return array.astype(dtype)
        try:
            if array.dtype.kind == "m":
                raise TypeError("numpy would take the number of a duration without its unit")
            with np.errstate(all="ignore"):
                converted = array.astype(dtype)
                if array.dtype.kind == "f" and dtype.kind == "f":
                    # A float of fewer bits may round. A number that becomes infinite is lost.
                    lost = np.isfinite(array) & ~np.isfinite(converted)
                else:
                    # Compare the signs too: -1 becomes 2**64 - 1, and comes back as -1.
                    lost = (converted.astype(array.dtype) != array) | ((converted < 0) != (array < 0))
        except (TypeError, ValueError, OverflowError) as error:
            raise CodecError(
                f"input {self.name!r} takes {dtype}, and values of {array.dtype} do not convert to it"
            ) from error
        if lost.any():
            example = array[lost].flat[0]
            raise CodecError(f"input {self.name!r} takes {dtype}, and {example} of {array.dtype} would be lost in it")
        return converted


def _grows_too_large(dtype: "np.dtype[Any]", own: "np.dtype[Any]", count: int) -> bool:
    return dtype.itemsize < own.itemsize and count * own.itemsize > MAX_DENSE_BYTES


def matches(shape: tuple[int, ...], row: tuple[int | None, ...]) -> bool:
    """Return whether a shape fits the shape of a row. `None` in the row fits any size."""
    return len(shape) == len(row) and all(want in (None, dim) for dim, want in zip(shape, row, strict=True))
