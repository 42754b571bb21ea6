"""Native codec: arrays, images, strings and sparse tensors to stream fields, and results back to arrays.

A tensor travels as an Arrow IPC Tensor message (https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format):

    | FF FF FF FF | int32 metadata length | metadata | data, C order |
    |<------------------ header ---------------------->|

The header depends on dtype and shape alone. Arrow makes the header once per dtype and shape, and the header is kept. Encoding is
then header + bytes, and decoding is one look-up: a third of the time that Arrow takes for 128 floats (bench/codec.py). Arrow is
imported when the first header is made or read. A worker does neither, and saves 20 MB.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cluster_serving.client.errors import CodecError, InvalidValue

Array = NDArray[Any]

_CONTINUATION = b"\xff\xff\xff\xff"
_MAX_LAYOUTS = 4096
_MAX_HEADER_BYTES = 8192  # a header for 64 dimensions, the most in numpy, takes 2496 bytes
_MAX_EMPTY = 1 << 24
_ABOVE_INT64 = 1 << 63


class TensorLayout(NamedTuple):
    """Content of a tensor message's header. The data are `nbytes` bytes at `offset`."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    nbytes: int


_layouts: dict[bytes, TensorLayout] = {}


def as_numbers(value: Any) -> Array:
    """Return nested lists as an array, as numpy does, but whole numbers of 64 bits as they are.

    Beside numbers below 2**63, numpy makes a number of 2**63 to 2**64 - 1 a float64, which rounds it.

    Raises:
        ValueError: the lists are ragged.
    """
    array = np.asarray(value)
    if isinstance(value, list | tuple) and array.dtype == np.float64 and array.size and array.max() >= _ABOVE_INT64:
        items = np.asarray(value, object)
        if array.min() >= 0 and all(isinstance(item, int | np.integer) for item in items.flat):
            return items.astype(np.uint64)
    return array


def refuse_masked(name: str, value: Any) -> None:
    """Refuse an array of `numpy.ma` that has masked values, because the values below a mask would be sent.

    Raises:
        InvalidValue: a value of the array is masked.
    """
    if type(value) is not np.ndarray and np.ma.is_masked(value):
        raise InvalidValue(
            f"input {name!r}: an array with masked values cannot be sent: fill them, as numpy.ma.filled does"
        )


@lru_cache(maxsize=_MAX_LAYOUTS)
def tensor_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the bytes before the data in the tensor message of a C-ordered array.

    Raises:
        CodecError: Arrow has no tensor of the dtype.
    """
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    try:
        pa.ipc.write_tensor(pa.Tensor.from_numpy(np.empty(shape, dtype)), sink)
    except pa.ArrowException as error:
        raise CodecError(f"an array of dtype {dtype} cannot be sent: {error}") from error
    message: bytes = sink.getvalue().to_pybytes()
    return message[: 8 + int.from_bytes(message[4:8], "little")]


def encode_tensor(array: Array) -> bytes:
    """Return the Arrow IPC Tensor message of an array.

    Args:
        array: any shape, also 0-d. The dtype is integer, unsigned integer, float16, float32 or float64.

    Raises:
        CodecError: Arrow has no tensor of the array's dtype.
    """
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return b"".join((tensor_header(array.dtype, array.shape), cast(Any, array)))


def tensor_layout(message: bytes) -> TensorLayout | None:
    """Return the content of the header, or None if the data are not in C order or the message is of Arrow before 0.15.

    Raises:
        CodecError: the bytes are not a tensor message, or are shorter than the header says.
    """
    offset = 8 + int.from_bytes(message[4:8], "little")
    layout = _layouts.get(message[:offset]) if offset <= _MAX_HEADER_BYTES else None
    if layout is None:
        if message[:4] != _CONTINUATION:
            return None
        if offset > _MAX_HEADER_BYTES:
            raise CodecError(f"not a tensor message, or a truncated one: its header has {offset} bytes")
        array = _read_with_arrow(message)
        if not array.flags.c_contiguous:
            return None
        layout = TensorLayout(array.dtype, array.shape, offset, array.nbytes)
        if len(_layouts) >= _MAX_LAYOUTS:
            _layouts.clear()
        _layouts[message[:offset]] = layout
    if len(message) - offset < layout.nbytes:
        raise CodecError(
            f"the tensor is truncated: {len(message) - offset} bytes of data where {layout.dtype} "
            f"{list(layout.shape)} has {layout.nbytes}"
        )
    return layout


def decode_tensor(message: bytes) -> Array:
    """Return the array of a tensor message, as a read-only view of the message.

    Raises:
        CodecError: the bytes are not a tensor message, or are shorter than the header says.
    """
    layout = tensor_layout(message)
    if layout is None:
        return _read_with_arrow(message)
    dtype, shape, offset, _ = layout
    return np.ndarray(shape, dtype, message, offset)


def _read_with_arrow(message: bytes) -> Array:
    import pyarrow as pa

    try:
        array: Array = pa.ipc.read_tensor(pa.BufferReader(message)).to_numpy()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CodecError(f"not a tensor message, or a truncated one: {error}") from error
    # With strides of 0, a copy turns a few bytes into terabytes. A batch of 2**40 empty rows has 2**40 results.
    if array.nbytes > len(message) or (array.size == 0 and math.prod(filter(None, array.shape)) > _MAX_EMPTY):
        raise CodecError(f"a tensor of {array.dtype} {list(array.shape)} in {len(message)} bytes")
    return array
