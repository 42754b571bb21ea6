"""Arrays of a request's tensors, from JSON or from binary data."""

import math
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from cluster_serving.client.wire.tensors import Array
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.http.json_body import MAX_PARTS
from cluster_serving.frontend.v2.datatypes import BF16, BYTES, DTYPES
from cluster_serving.frontend.v2.request import InputHead

_MAX_DIMENSIONS = 32
_MAX_DIMENSION = 1 << 53
_MAX_EMPTY = 1 << 24
_LENGTH = struct.Struct("<I")

_ELEMENTS: dict[str, Any] = {
    "BOOL": list[bool],
    "UINT8": list[Annotated[int, Meta(ge=0, le=2**8 - 1)]],
    "UINT16": list[Annotated[int, Meta(ge=0, le=2**16 - 1)]],
    "UINT32": list[Annotated[int, Meta(ge=0, le=2**32 - 1)]],
    "UINT64": list[Annotated[int, Meta(ge=0)]],
    "INT8": list[Annotated[int, Meta(ge=-(2**7), le=2**7 - 1)]],
    "INT16": list[Annotated[int, Meta(ge=-(2**15), le=2**15 - 1)]],
    "INT32": list[Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]],
    "INT64": list[int],
    "FP16": list[float],
    BF16: list[float],
    "FP32": list[float],
    "FP64": list[float],
    BYTES: list[str],
}
"""JSON form of the elements, by datatype."""
_LARGEST = {np.dtype(each).itemsize: float(np.finfo(each).max) for each in (np.float16, np.float32, np.float64)}


class Tensor(NamedTuple):
    """One input: numbers, or for BYTES objects of `bytes` (from binary data) or `str` (from JSON)."""

    name: str
    datatype: str
    array: Array

    @property
    def described(self) -> str:
        """Datatype and shape for people to read: `FP32 [1, 4]`."""
        return f"{self.datatype} {list(self.array.shape)}"


def read_tensor(head: InputHead, binary: memoryview | None) -> Tensor:
    """Return the tensor that a request's head describes.

    Args:
        head: head of the input.
        binary: binary data, or None for data in the head. The array may be a view of the binary data.

    Raises:
        BadRequest: the datatype is unknown, or data and shape differ in size, or the data are not of the datatype.
    """
    if head.datatype not in DTYPES:
        raise BadRequest(f"input {head.name!r}: the datatype is {head.datatype[:40]!r}, not one of {', '.join(DTYPES)}")
    shape = head.shape
    if len(shape) > _MAX_DIMENSIONS or not all(0 <= dim <= _MAX_DIMENSION for dim in shape):
        raise BadRequest(
            f"input {head.name!r}: the shape is {str(shape)[:200]}, and at most {_MAX_DIMENSIONS} dimensions of 0 to "
            f"{_MAX_DIMENSION} are taken"
        )
    count = math.prod(shape)
    if count == 0 and math.prod(filter(None, shape)) > _MAX_EMPTY:
        raise BadRequest(f"input {head.name!r}: the shape {list(shape)} has no elements and too many rows")
    if binary is None:
        flat = _from_json(head, count)
    elif head.datatype == BYTES:
        flat = np.array(_texts(head, binary, count), object)
    else:
        flat = _from_binary(head, binary, count)
    return Tensor(head.name, head.datatype, flat.reshape(shape))


def _from_binary(head: InputHead, binary: memoryview, count: int) -> Array:
    dtype = np.dtype(np.uint16 if head.datatype == BF16 else DTYPES[head.datatype])
    if len(binary) != count * dtype.itemsize:
        raise BadRequest(
            f"input {head.name!r}: {head.datatype} {list(head.shape)} has {count * dtype.itemsize} bytes, and its "
            f"binary_data_size is {len(binary)}"
        )
    if dtype.kind == "b":
        flags: Array = np.ndarray(count, np.uint8, binary) != 0
        return flags
    array: Array = np.ndarray(count, dtype.newbyteorder("<"), binary)
    return (array.astype(np.uint32) << 16).view(np.float32) if head.datatype == BF16 else array


def _texts(head: InputHead, binary: memoryview, count: int) -> list[bytes]:
    """Return the elements of binary BYTES. Each element is its length in four bytes, then its content."""
    texts: list[bytes] = []
    start, end = 0, len(binary)
    if count > MAX_PARTS:
        raise BadRequest(f"input {head.name!r} has {count} texts; at most {MAX_PARTS} are read")
    while start < end and len(texts) < count:
        begin = start + _LENGTH.size
        start = begin + _LENGTH.unpack_from(binary, start)[0] if begin <= end else end + 1
        if start > end:
            raise BadRequest(f"input {head.name!r}: the data of element {len(texts)} are cut off")
        texts.append(bytes(binary[begin:start]))
    if start < end or len(texts) < count:
        raise _other_count(head, count, f"{len(texts)}{' and more' * (start < end)}")
    return texts


def _from_json(head: InputHead, count: int) -> Array:
    if not isinstance(head.data, list):
        raise BadRequest(f"input {head.name!r} has neither a list of data nor binary_data_size")
    try:
        data: list[Any] = msgspec.convert(_flat(head), _ELEMENTS[head.datatype])
    except (msgspec.ValidationError, ValueError) as error:
        raise BadRequest(
            f"input {head.name!r}: the data are not {head.datatype} {list(head.shape)}: {error}"
        ) from error
    if len(data) != count:
        raise _other_count(head, count, len(data))
    if head.datatype == BYTES:
        return np.array(data, object)
    try:
        return _numbers(data, np.dtype(DTYPES[head.datatype]))
    except OverflowError as error:
        raise BadRequest(f"input {head.name!r}: the data are not {head.datatype}: {error}") from error


def _numbers(data: list[Any], dtype: np.dtype[Any]) -> Array:
    if dtype.kind != "f":
        return np.array(data, dtype)
    array = np.array(data, np.float64)
    largest = _LARGEST[dtype.itemsize]
    if array.size and not -largest <= array.min() <= array.max() <= largest:
        raise OverflowError(f"{array[np.abs(array).argmax()]} is too large")
    return array.astype(dtype, copy=False)


def _flat(head: InputHead) -> list[Any]:
    """Return the elements of data that are flat, or nested as the shape says."""
    data: list[Any] = head.data
    if not (data and isinstance(data[0], list)):
        return data
    for depth, dim in enumerate(head.shape):
        if depth:
            if not all(isinstance(part, list) and len(part) == dim for part in data):
                raise ValueError(f"not every list at depth {depth} has the length {dim}")
            data = list(chain.from_iterable(data))
        elif len(data) != dim:
            raise ValueError(f"the list has {len(data)} items")
    return data


def _other_count(head: InputHead, count: int, found: object) -> BadRequest:
    return BadRequest(
        f"input {head.name!r}: {head.datatype} {list(head.shape)} has {count} elements, and the data have {found}"
    )


def read_tensors(heads: Sequence[InputHead], binary: Sequence[memoryview | None]) -> dict[str, Tensor]:
    """Return the tensors of a request by name.

    Raises:
        BadRequest: a tensor is not valid, or two tensors have one name, or there is no tensor.
    """
    tensors = {head.name: read_tensor(head, data) for head, data in zip(heads, binary, strict=True)}
    if not tensors or len(tensors) < len(heads):
        raise BadRequest("the request has two inputs of one name" if tensors else "the request has no inputs")
    return tensors
