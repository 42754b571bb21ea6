"""Codec of nested values, which no tensor holds: sequences and maps of ONNX, and values that may be absent.

A value is msgpack: lists, maps, numbers, text and nil as they are, and each array as an extension type whose content is

    1    an Arrow IPC Tensor message
    2    the same of booleans, as uint8
    3    an array of text, as JSON of nested lists
"""

import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import numpy as np

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.tensors import decode_tensor, encode_tensor

_TENSOR, _BOOL, _TEXT = 1, 2, 3


def encode_nested(value: Any) -> bytes:
    """Return the bytes of a nested value: lists and maps of arrays, numbers, text, or None.

    Raises:
        CodecError: the value holds something else.
    """
    try:
        return msgspec.msgpack.encode(value, enc_hook=_encode)
    except (TypeError, OverflowError, RecursionError) as error:
        raise CodecError(f"a nested value cannot be sent: {error}") from error


def decode_nested(content: bytes) -> Any:
    """Return the nested value in bytes.

    Raises:
        CodecError: the bytes hold no nested value.
    """
    try:
        return msgspec.msgpack.decode(content, ext_hook=_decode)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CodecError(f"not a nested value: {error}") from error


def is_nested(value: Any) -> bool:
    """Return whether a value needs this codec: a map, or a list that holds anything but text and lists of text."""
    match value:
        case Mapping() | None:
            return True
        case list() | tuple():
            items = cast("list[Any]", value)
            return any(not isinstance(item, str) and (not isinstance(item, list) or is_nested(item)) for item in items)
        case _:
            return False


def _encode(value: Any) -> Any:
    match value:
        case np.generic():
            return value.item()
        case np.ndarray() if value.dtype.kind == "b":
            return msgspec.msgpack.Ext(_BOOL, encode_tensor(value.view(np.uint8)))
        case np.ndarray() if value.dtype.kind in "fiu":
            return msgspec.msgpack.Ext(_TENSOR, encode_tensor(value))
        case np.ndarray() if all(isinstance(item, str) for item in value.flat):
            return msgspec.msgpack.Ext(_TEXT, json.dumps(value.tolist()).encode())
        case _:
            raise TypeError(f"a {type(value).__name__} is neither an array nor a number nor text")


def _decode(code: int, content: memoryview) -> Any:
    match code:
        case 1:
            return decode_tensor(bytes(content)).copy()
        case 2:
            return decode_tensor(bytes(content)).astype(np.bool_)
        case 3:
            return np.array(json.loads(bytes(content)), object)
        case _:
            raise ValueError(f"an extension type {code}")
