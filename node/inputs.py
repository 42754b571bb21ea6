"""One value of a record for one input of the model: checked against its dtype and shape, converted where nothing is lost."""

import json
from functools import lru_cache
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


class InputValue(NamedTuple):
    """What goes into the slot, and its part of the signature; `batched`: it carried a batch dimension of 1."""

    key: Key
    content: Content
    batched: bool = False


@lru_cache(maxsize=4096)
def _exact_key(spec: TensorSpec, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Key | None:
    """The signature of a tensor that is what the input takes, as it is; None: it must be looked at."""
    if spec.is_text or dtype != np.dtype(spec.dtype) or not _matches(shape, spec.row_shape):
        return None
    return ("tensor", dtype.str, shape)


def tensor_message(spec: TensorSpec, message: bytes) -> InputValue:
    """A tensor from its message; its data are not copied when they fit as they are.

    Raises:
        CodecError: not a tensor, or not one that this input takes.
    """
    layout = tensor_layout(message)
    if layout is not None:
        key = _exact_key(spec, layout.dtype, layout.shape)
        if key is not None:
            return InputValue(key, memoryview(message)[layout.offset : layout.offset + layout.nbytes])
    return tensor(spec, decode_tensor(message))


def tensor(spec: TensorSpec, array: Array) -> InputValue:
    """A tensor of any dtype and shape.

    Raises:
        CodecError: the input takes another shape, or the values cannot become its dtype without loss.
    """
    if spec.is_text:
        raise CodecError(f"input {spec.name!r} takes text, not a tensor of {array.dtype}")
    shape, row = array.shape, spec.row_shape
    batched = False
    if not _matches(shape, row):
        if shape[:1] == (1,) and _matches(shape[1:], row):
            batched, shape = True, shape[1:]
        elif array.size == 1 and all(dim in (1, None) for dim in row):
            shape = (1,) * len(row)
        else:
            dims = ",".join("?" if dim is None else str(dim) for dim in row)
            raise CodecError(
                f"input {spec.name!r} takes {spec.dtype} [{dims}] a record, not {array.dtype} {list(array.shape)}"
            )
    converted = np.ascontiguousarray(_convert(spec, array))
    return InputValue(("tensor", converted.dtype.str, shape), converted.data.cast("B"), batched)


def image(spec: TensorSpec, encoded: bytes) -> InputValue:
    """An encoded image; a worker decodes it.

    Raises:
        CodecError: the input takes text.
    """
    if spec.is_text:
        raise CodecError(f"input {spec.name!r} takes text, not an image")
    return InputValue(_IMAGE, encoded)


def text(spec: TensorSpec, encoded: bytes) -> InputValue:
    """JSON of a string or nested lists of them.

    Raises:
        CodecError: the input takes numbers, or this is not JSON.
    """
    if not spec.is_text:
        raise CodecError(f"input {spec.name!r} takes {spec.describe()}, not text")
    try:
        json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"input {spec.name!r} is not JSON: {error}") from error
    return InputValue(_TEXT, encoded)


def sparse(spec: TensorSpec, indices: Array, values: Array, shape: Array) -> InputValue:
    """A sparse tensor, made dense: indices (rank, nnz), values (nnz,), shape (rank,).

    Raises:
        CodecError: an index lies outside the shape, or the input takes another shape.
    """
    return tensor(spec, original.densify(indices, values, shape.tolist(), max_bytes=_MAX_DENSE_BYTES))


def original_value(spec: TensorSpec, value: original.OriginalValue) -> InputValue:
    """A value of the original dialect.

    Raises:
        CodecError: it does not fit the input.
    """
    match value:
        case original.DenseTensor(array):
            return tensor(spec, array)
        case original.SparseTensor(indices, values, shape):
            return sparse(spec, indices, values, np.array(shape, np.int64))
        case original.EncodedImage(content):
            return image(spec, content)
        case original.StringTensor(strings, shape):
            nested = np.array(strings, dtype=object).reshape(shape).tolist()
            return text(spec, json.dumps(nested).encode())


def _matches(shape: tuple[int, ...], row: tuple[int | None, ...]) -> bool:
    return len(shape) == len(row) and all(want in (None, dim) for dim, want in zip(shape, row, strict=True))


def _convert(spec: TensorSpec, array: Array) -> Array:
    dtype = np.dtype(spec.dtype)
    if np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype)
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
        if array.dtype.kind == "f" and dtype.kind == "f":
            # Rounding is what a float of fewer bits means; a number that becomes infinite is lost.
            lost = np.isfinite(array) & ~np.isfinite(converted)
        else:
            lost = converted.astype(array.dtype) != array
    if lost.any():
        example = array[lost].flat[0]
        raise CodecError(f"input {spec.name!r} takes {spec.dtype}, and {example} of {array.dtype} would be lost in it")
    return converted
