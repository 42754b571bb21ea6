"""Values in a record of the original dialect, and the common checks of the decoders.

Shapes come from the wire, so each shape is compared with the data that are really there before an array is made.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.original.base64_text import from_base64

SparseLayout = Literal["ndim-major", "nnz-major"]
"""Layout of square indices: a row for each dimension, (rank, nnz), or a row for each value, (nnz, rank)."""

_MAX_DENSE_BYTES = 1 << 30
MAX_RANK = 64
MAX_STRINGS = 1 << 20
MAX_JSON_BYTES = 32 << 20
"""Most bytes of one JSON text: `[[],[],...]` becomes 25 times as many bytes of objects."""
_MAX_DIMENSION = (1 << 64) - 1
_MAX_EMPTY = 1 << 24
# The longest signature below ends at byte 12. 16 characters of base64 hold 12 bytes.
_SIGNATURE_CHARACTERS = 16
_SIGNATURES = (
    b"\xff\xd8\xff",  # JPEG
    b"\x89PNG\r\n\x1a\n",
    b"GIF8",
    b"II*\x00",  # TIFF, little-endian
    b"MM\x00*",  # TIFF, big-endian
    b"\x00\x00\x00\x0cjP  ",  # JPEG 2000
    b"\xff\x4f\xff\x51",  # JPEG 2000 code stream
    b"\x76\x2f\x31\x01",  # OpenEXR
    b"#?RADIANCE",
)


class DenseTensor(NamedTuple):
    """Array in C order, of any shape. The array may be a read-only view of the record."""

    array: NDArray[np.float32]


class SparseTensor(NamedTuple):
    """Tensor of `shape` with `values[i]` at `indices[:, i]`, and zero elsewhere.

    `indices` is (rank, nnz) for both layouts on the wire, `values` is (nnz,). `densify` checks that the indices lie within the
    shape.
    """

    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    shape: tuple[int, ...]


class EncodedImage(NamedTuple):
    """Content of a JPEG, PNG, ... file."""

    content: bytes


class StringTensor(NamedTuple):
    """Strings in C order."""

    strings: list[str]
    shape: tuple[int, ...]


OriginalValue = DenseTensor | SparseTensor | EncodedImage | StringTensor


def is_image(head: bytes) -> bool:
    """Return whether a file that begins with `head` is an image for OpenCV."""
    return (
        head.startswith(_SIGNATURES)
        or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")
        or (head[:2] == b"BM" and head[6:10] == bytes(4))
        or head[4:8] == b"ftyp"  # AVIF
    )


def text_value(name: str, text: str) -> EncodedImage | StringTensor:
    """Return the meaning of a text: an image if the text is the base64 of an image, else a string.

    An encrypted image has no signature, so its base64 text comes out as a string.

    Raises:
        CodecError: the text begins like an image in base64, but is not base64 throughout.
    """
    try:
        head = from_base64(text[:_SIGNATURE_CHARACTERS], name)
    except CodecError:
        head = b""
    return image_value(name, text) if is_image(head) else StringTensor([text], (1,))


def image_value(name: str, text: str) -> EncodedImage:
    """Return the image in a base64 text.

    Raises:
        CodecError: the text is not base64.
    """
    return EncodedImage(from_base64(text, f"column {name!r}: the image"))


def check_shape(name: str, shape: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the shape, if the shape has `count` elements.

    Raises:
        CodecError: a dimension is negative or too large, there are too many dimensions, or the product is not `count`.
    """
    _check_dimensions(f"column {name!r}: ", shape)
    if math.prod(shape) != count:
        raise CodecError(f"column {name!r}: {count} elements where shape {list(shape)} has {math.prod(shape)}")
    return tuple(shape)


def _check_dimensions(prefix: str, shape: Sequence[int]) -> None:
    # The rank is checked before the product is made, because the product of 100,000 dimensions takes half a minute.
    if len(shape) > MAX_RANK:
        raise CodecError(f"{prefix}shape of {len(shape)} dimensions; at most {MAX_RANK} are allowed")
    if any(dimension < 0 for dimension in shape):
        raise CodecError(f"{prefix}negative dimension in shape {list(shape)}")
    if max(shape, default=0) > _MAX_DIMENSION:
        raise CodecError(f"{prefix}a dimension in the shape is larger than {_MAX_DIMENSION}")
    if 0 in shape and math.prod(filter(None, shape)) > _MAX_EMPTY:
        raise CodecError(f"{prefix}shape {list(shape)} of a tensor without elements")


def dense_value(name: str, values: NDArray[Any], shape: Sequence[int]) -> DenseTensor:
    """Return a dense tensor made of flat values and a shape.

    Raises:
        CodecError: the values do not fit the shape.
    """
    checked = check_shape(name, shape, values.size)
    try:
        return DenseTensor(values.astype(np.float32, copy=False).reshape(checked))
    except ValueError as error:  # more dimensions than numpy allows
        raise CodecError(f"column {name!r}: shape of {len(checked)} dimensions: {error}") from error


def sparse_value(
    name: str,
    indices: NDArray[Any],
    indices_shape: Sequence[int],
    values: NDArray[Any],
    shape: Sequence[int],
    layout: SparseLayout,
) -> SparseTensor:
    """Return a sparse tensor made of flat parts, with indices in the form (rank, nnz).

    Args:
        name: name of the column, for error messages.
        indices: flat, integer.
        indices_shape: (rank, nnz), (nnz, rank), or (nnz,) for a tensor of rank 1.
        values: (nnz,).
        shape: (rank,), shape of the dense tensor.
        layout: layout of indices with a shape that fits both layouts.

    Raises:
        CodecError: the parts do not fit each other.
    """
    rank, nnz = len(shape), values.size
    _check_dimensions(f"column {name!r}: ", shape)
    rows = check_shape(f"{name} (indices)", indices_shape, indices.size)
    if rank == 1 and rows == (nnz,):
        rows = (1, nnz)
    fits_ndim, fits_nnz = rows == (rank, nnz), rows == (nnz, rank)
    if not fits_ndim and not fits_nnz:
        raise CodecError(
            f"column {name!r}: indices of shape {list(indices_shape)} for {nnz} values of a tensor of rank {rank}; "
            f"they must be {[rank, nnz]} or {[nnz, rank]}"
        )
    table = indices.astype(np.int32, copy=False).reshape(rows)
    if fits_nnz and not (fits_ndim and layout == "ndim-major"):
        table = np.ascontiguousarray(table.T)
    return SparseTensor(table, values.astype(np.float32, copy=False), tuple(shape))


def densify(
    indices: NDArray[Any], values: NDArray[Any], shape: Sequence[int], max_bytes: int = _MAX_DENSE_BYTES
) -> NDArray[Any]:
    """Return the dense array of a sparse tensor. For a repeated index, the last value stays.

    Args:
        indices: (rank, nnz), integer.
        values: (nnz,).
        shape: shape of the result.
        max_bytes: size of the largest allowed result.

    Returns:
        An array of `shape` and of the dtype of `values`.

    Raises:
        CodecError: the parts do not fit each other, an index lies outside the shape, or the result would be too large.
    """
    _check_dimensions("", shape)
    if indices.shape != (len(shape), values.size):
        raise CodecError(
            f"sparse indices of shape {list(indices.shape)} for {values.size} values of a tensor of rank {len(shape)}"
        )
    nbytes = math.prod(shape) * values.dtype.itemsize
    if nbytes > max_bytes:
        raise CodecError(f"a dense tensor of shape {list(shape)} has {nbytes} bytes; at most {max_bytes} are allowed")
    outside = (indices < 0) | (indices >= np.array(shape, np.int64).reshape(-1, 1))
    if outside.any():
        column = int(np.argmax(outside.any(axis=0)))
        raise CodecError(f"sparse index {indices[:, column].tolist()} lies outside shape {list(shape)}")
    try:
        dense = np.zeros(tuple(shape), values.dtype)
        if values.size:
            dense[tuple(indices)] = values
    except ValueError as error:  # more dimensions than numpy allows, or no dimension and several values
        raise CodecError(f"shape of {len(shape)} dimensions: {error}") from error
    return dense
