"""One value of a record for one input of the model: checked against its dtype and shape, converted where nothing is lost."""

import json
from typing import NamedTuple

import numpy as np

from cluster_serving.client import original
from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire import Array, decode_tensor, tensor_layout
from cluster_serving.node.models.base import TensorSpec

Content = memoryview | bytes
Key = tuple[str, str, tuple[int, ...]]

_IMAGE: Key = ("image", "", ())
_TEXT: Key = ("string", "", ())
_MAX_DENSE_BYTES = 1 << 28
_MAX_HEADERS = 4096


class InputValue(NamedTuple):
    """What goes into the slot, and its part of the signature; `batched`: it carried a batch dimension of 1."""

    key: Key
    content: Content
    batched: bool = False


class Input:
    """One input of the model, as the reader sees it."""

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec
        self._is_text = spec.is_text
        self._dtype = np.dtype(object if spec.is_text else spec.dtype)
        self._row = spec.row_shape
        # By the header of a tensor message that fits as it is: its key, and where the data begin and end.
        self.exact: dict[bytes, tuple[Key, int, int]] = {}

    def tensor_message(self, message: bytes) -> InputValue:
        """A tensor from its message; its data are not copied when they fit as they are.

        Raises:
            CodecError: not a tensor, or not one that this input takes.
        """
        layout = tensor_layout(message)
        if layout is None or self._is_text or layout.dtype != self._dtype or not _matches(layout.shape, self._row):
            return self.tensor(decode_tensor(message))
        key, end = ("tensor", layout.dtype.str, layout.shape), layout.offset + layout.nbytes
        if len(self.exact) < _MAX_HEADERS:
            self.exact[message[: layout.offset]] = (key, layout.offset, end)
        return InputValue(key, memoryview(message)[layout.offset : end])

    def tensor(self, array: Array) -> InputValue:
        """A tensor of any dtype and shape.

        Raises:
            CodecError: the input takes another shape, or the values cannot become its dtype without loss.
        """
        name, row, shape = self.spec.name, self._row, array.shape
        if self._is_text:
            raise CodecError(f"input {name!r} takes text, not a tensor of {array.dtype}")
        batched = False
        if not _matches(shape, row):
            if shape[:1] == (1,) and _matches(shape[1:], row):
                batched, shape = True, shape[1:]
            elif array.size == 1 and all(dim in (1, None) for dim in row):
                shape = (1,) * len(row)
            else:
                dims = ",".join("?" if dim is None else str(dim) for dim in row)
                raise CodecError(
                    f"input {name!r} takes {self._dtype} [{dims}] a record, not {array.dtype} {list(shape)}"
                )
        converted = np.ascontiguousarray(self._converted(array))
        # Not memoryview.cast, which refuses arrays without elements.
        return InputValue(("tensor", converted.dtype.str, shape), converted.reshape(-1).view(np.uint8).data, batched)

    def image(self, encoded: bytes) -> InputValue:
        """An encoded image; a worker decodes it.

        Raises:
            CodecError: the input takes text.
        """
        if self._is_text:
            raise CodecError(f"input {self.spec.name!r} takes text, not an image")
        return InputValue(_IMAGE, encoded)

    def text(self, encoded: bytes) -> InputValue:
        """JSON of a string or nested lists of them.

        Raises:
            CodecError: the input takes numbers, or this is not JSON.
        """
        if not self._is_text:
            raise CodecError(f"input {self.spec.name!r} takes {self.spec.kind}, not text")
        try:
            json.loads(encoded)
        except (ValueError, RecursionError) as error:
            raise CodecError(f"input {self.spec.name!r} is not JSON: {error}") from error
        return InputValue(_TEXT, encoded)

    def sparse(self, indices: Array, values: Array, shape: Array) -> InputValue:
        """A sparse tensor, made dense: indices (rank, nnz), values (nnz,), shape (rank,).

        Raises:
            CodecError: an index lies outside the shape, or the input takes another shape.
        """
        if indices.dtype.kind not in "iu" or shape.dtype.kind not in "iu" or shape.ndim != 1:
            raise CodecError(
                f"input {self.spec.name!r}: sparse indices and shape are integers, not {indices.dtype} and "
                f"{shape.dtype} {list(shape.shape)}"
            )
        return self.tensor(original.densify(indices, values, shape.tolist(), max_bytes=_MAX_DENSE_BYTES))

    def original_value(self, value: original.OriginalValue) -> InputValue:
        """A value of the original dialect.

        Raises:
            CodecError: it does not fit the input.
        """
        match value:
            case original.DenseTensor(array):
                return self.tensor(array)
            case original.SparseTensor(indices, values, shape):
                return self.sparse(indices, values, np.array(shape, np.int64))
            case original.EncodedImage(content):
                return self.image(content)
            case original.StringTensor(strings, shape):
                nested = np.array(strings, dtype=object).reshape(shape).tolist()
                return self.text(json.dumps(nested).encode())

    def _converted(self, array: Array) -> Array:
        dtype = self._dtype
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
            raise CodecError(
                f"input {self.spec.name!r} takes {dtype}, and {example} of {array.dtype} would be lost in it"
            )
        return converted


def _matches(shape: tuple[int, ...], row: tuple[int | None, ...]) -> bool:
    return len(shape) == len(row) and all(want in (None, dim) for dim, want in zip(shape, row, strict=True))
