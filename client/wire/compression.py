"""Compressed tensors: the field `compressed:<name>` in place of `tensor:<name>` or `bool:<name>`.

The content is MessagePack, `[codec, dtype, shape, data]`: `lz4` or `zstd`, the dtype as numpy names it, and the values in C order,
little endian, as an LZ4 frame or a Zstandard frame. Dtype and shape tell the size of the values before they are decompressed, and
no further byte is decompressed. A small record can thus not become larger than a slot.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.tensors import Array, tensor_header

Codec = Literal["lz4", "zstd"]
CODECS: Final[tuple[Codec, ...]] = get_args(Codec)
"""Codecs that this release reads."""

_DTYPES = {np.dtype(letter).name: np.dtype(letter) for letter in "?bhiqBHIQefd"}
_MOST_DIMENSIONS = 32  # what every release of numpy takes
_Dimension = Annotated[int, msgspec.Meta(ge=0)]


class CompressedTensor(msgspec.Struct, frozen=True, array_like=True):
    """Content of the field of a compressed tensor."""

    codec: str
    dtype: str
    shape: tuple[_Dimension, ...]
    data: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CompressedTensor).decode


def compress(array: Array, codec: Codec) -> bytes:
    """Return the content of the field of a compressed tensor.

    Args:
        array: any shape, in C order and of the machine's byte order. Bools, integers, and floats of 16, 32 or 64 bits.
        codec: codec for the values.
    """
    return _encode((codec, array.dtype.name, array.shape, _codec(codec).compress(array.reshape(-1), asbytes=True)))


def restore(content: bytes, most_bytes: int) -> tuple[bytes, bytes]:
    """Return a compressed tensor as a plain one: the kind of the field, `tensor:` or `bool:`, and its tensor message.

    Args:
        content: content of the field.
        most_bytes: most bytes that the values may have.

    Raises:
        CodecError: the content is no compressed tensor, is of an unknown codec, or has not the size that dtype and shape say.
    """
    import pyarrow as pa

    tensor = read(content)
    dtype, shape = _DTYPES[tensor.dtype], tensor.shape
    nbytes = dtype.itemsize * math.prod(shape)
    if dtype.itemsize * math.prod(filter(None, shape)) > most_bytes:
        raise CodecError(
            f"the compressed tensor of {dtype} {list(shape)} is too large: a slot has room for {most_bytes} bytes more "
            "(slotBytes in config.yaml)"
        )
    # Not `pa.decompress`: of an LZ4 frame with fewer bytes it leaves the rest as the memory was, with bytes of other records.
    try:
        with pa.CompressedInputStream(pa.BufferReader(tensor.data), tensor.codec) as stream:
            values: bytes = stream.read(nbytes + 1)
    except (pa.ArrowException, OSError) as error:
        raise CodecError(f"the compressed tensor is damaged: {error}") from error
    if len(values) != nbytes:
        count = f"{len(values)} bytes" if len(values) < nbytes else f"more than {nbytes} bytes"
        raise CodecError(f"the compressed tensor holds {count} where {dtype} {list(shape)} has {nbytes}")
    is_bool = dtype.kind == "b"
    header = tensor_header(np.dtype(np.uint8) if is_bool else dtype, shape)
    return keys.BOOL if is_bool else keys.TENSOR, b"".join((header, values))


def read(content: bytes) -> CompressedTensor:
    """Return a compressed tensor with its values as they came.

    Raises:
        CodecError: the content is no compressed tensor, or is of an unknown codec.
    """
    try:
        tensor = _decode(content)
    except msgspec.MsgspecError as error:
        raise CodecError(f"not a compressed tensor: {error}") from error
    if tensor.codec not in CODECS:
        raise CodecError(f"the tensor is compressed by {tensor.codec[:40]!r}, and this release reads {_listed(CODECS)}")
    if tensor.dtype not in _DTYPES:
        raise CodecError(f"a compressed tensor is of {_listed([*_DTYPES])}, not of {tensor.dtype[:40]!r}")
    if len(tensor.shape) > _MOST_DIMENSIONS:
        raise CodecError(
            f"the compressed tensor has {len(tensor.shape)} dimensions; at most {_MOST_DIMENSIONS} are read"
        )
    return tensor


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


@lru_cache
def _codec(name: Codec) -> Any:
    import pyarrow as pa

    return pa.Codec(name)
