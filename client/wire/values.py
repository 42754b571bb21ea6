"""Conversion of a program's values to the fields of a native request.

| value | becomes |
|---|---|
| ndarray of numbers or bools, number, bool, (nested) list of numbers | tensor of the same dtype and shape, [] for a number |
| `str`, `os.PathLike`, `{"path": …}` | image: the file's bytes |
| `bytes`, `{"b64": text}`, `{"image": bytes}`, `{"image": ndarray}` | image, an array (height, width[, BGR], uint8) as PNG |
| `{"string": text}`, (nested) list of `str`, ndarray of strings | string |
| `{"sequence": [ndarray, …]}`, for an input that is a sequence; `{"sequence": None}` if it may be absent | nested value |
| list of three ndarrays: indices (rank, nnz), values (nnz,), shape (rank,) | sparse tensor |
"""

import base64
import binascii
import json
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError, InvalidValue
from cluster_serving.client.wire.nested import encode_nested
from cluster_serving.client.wire.tensors import Array, as_numbers, encode_tensor, refuse_masked

_MAX_RANK = 64  # the most dimensions of a numpy array
Value = (
    NDArray[Any] | np.generic | float | str | bytes | os.PathLike[str] | list[Any] | tuple[Any, ...] | dict[str, Any]
)
"""Value of one input: a tensor, an image (its path, its bytes, or a dict), text, or a sparse tensor."""


def encode_record(uri: str, data: Mapping[str, Any]) -> list[bytes]:
    """Return the fields of a native request: `field, value, field, value, ...`, `uri` first.

    Args:
        uri: the record's name, 1 to 4096 bytes of UTF-8.
        data: value of each model input, by name.

    Raises:
        InvalidValue: the uri or a value cannot be sent. The message names the uri or the input.
    """
    fields = [keys.URI, encode_uri(uri)]
    if not data:
        raise InvalidValue(f"record {uri!r} has no inputs")
    for name, value in data.items():
        if type(value) is np.ndarray and value.dtype.kind in "fiu":
            fields += (_field(keys.TENSOR, name), _encoded(name, value))
        elif isinstance(value, (str, bytes, dict, os.PathLike)):
            kind, content = _string_or_image(name, cast("str | bytes | dict[str, Any] | os.PathLike[str]", value))
            fields += (_field(kind, name), content)
        elif isinstance(value, list) and len(value) == 3 and all(isinstance(part, np.ndarray) for part in value):
            indices, values, shape = cast(list[Array], value)
            refuse_masked(name, values)
            fields += (_field(keys.SPARSE_INDICES, name), _integers(name, "indices", indices))
            fields += (_field(keys.SPARSE_VALUES, name), _encoded(name, values))
            fields += (_field(keys.SPARSE_SHAPE, name), _integers(name, "shape", shape))
        else:
            array = _as_array(name, value)
            letter = array.dtype.kind
            if letter == "b":
                fields += (_field(keys.BOOL, name), _encoded(name, array.view(np.uint8)))
            elif letter in "fiu":
                fields += (_field(keys.TENSOR, name), _encoded(name, array))
            elif letter == "U" or (letter in "OT" and all(isinstance(item, str) for item in array.flat)):
                fields += (_field(keys.STRING, name), json.dumps(array.tolist()).encode())
            else:
                raise InvalidValue(f"input {name!r}: an array of dtype {array.dtype} cannot be sent")
    return fields


def begins_with_text(value: Any) -> bool:
    """Return whether the first value in a nested list is text."""
    for _ in range(_MAX_RANK):
        if not isinstance(value, list | tuple) or not value:
            break
        value = cast("list[Any]", value)[0]
    return isinstance(value, str)


def encode_uri(uri: str) -> bytes:
    """Return the uri as bytes for the wire.

    Raises:
        InvalidValue: the uri is empty, too long, or not text.
    """
    try:
        encoded = uri.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidValue(f"a uri must be valid Unicode text, not {uri!r:.60}: {error}") from error
    if not 0 < len(encoded) <= keys.MAX_URI_BYTES:
        raise InvalidValue(f"a uri has 1 to {keys.MAX_URI_BYTES} bytes, this one has {len(encoded)}: {uri[:40]!r}")
    return encoded


@lru_cache(maxsize=4096)
def _field(kind: bytes, name: Any) -> bytes:
    try:
        return kind + bytes(name.encode())
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidValue(f"an input's name must be valid Unicode text, not {name!r}: {error}") from error


def _encoded(name: str, value: Any, encode: Callable[[Any], bytes] = encode_tensor) -> bytes:
    try:
        return encode(value)
    except CodecError as error:
        raise InvalidValue(f"input {name!r}: {error}") from error


def _integers(name: str, part: str, array: Array) -> bytes:
    if array.dtype.kind in "iuf":
        with np.errstate(invalid="ignore"):
            integers = array.astype(np.int64)
        if np.array_equal(integers, array):
            return _encoded(name, integers)
    raise InvalidValue(f"input {name!r}: the {part} of a sparse tensor must be integers, not {array.dtype}")


def _as_array(name: str, value: Any) -> Array:
    if not isinstance(value, (np.ndarray, np.generic, bool, int, float, list, tuple)):
        raise InvalidValue(
            f"input {name!r}: a {type(value).__name__} cannot be sent; expected an ndarray, a number, an image "
            "(path, bytes, {'b64': ...} or {'image': ...}), {'string': ...}, a list of str, or [indices, values, shape]"
        )
    if isinstance(value, list | tuple) and begins_with_text(value):
        return _texts(name, value)
    refuse_masked(name, value)
    try:
        array = as_numbers(value)
    except ValueError as error:
        raise InvalidValue(f"input {name!r}: the nested list is ragged: {error}") from error
    if array.dtype.kind == "U" and isinstance(value, list | tuple):
        return _texts(name, value)
    if array.size == 0 and not isinstance(value, np.ndarray):
        raise InvalidValue(f"input {name!r}: empty list is not supported")
    return array


def _texts(name: str, value: list[Any] | tuple[Any, ...]) -> Array:
    """Return a nested list of text as objects: an array of text is as wide as its longest text, and drops NUL at the end."""
    try:
        texts = np.array(value, object)
    except ValueError as error:
        raise InvalidValue(f"input {name!r}: the nested list is ragged: {error}") from error
    for item in texts.flat:
        if isinstance(item, list | tuple | np.ndarray):
            raise InvalidValue(f"input {name!r}: the nested list of text is ragged")
        if not isinstance(item, str):
            raise InvalidValue(
                f"input {name!r}: a list of text holds {item!r:.60}, a {type(item).__name__}; "
                "send only text, as str(value) makes it, or numbers as an input of their own"
            )
    return texts


def _string_or_image(name: str, value: str | bytes | dict[str, Any] | os.PathLike[str]) -> tuple[bytes, bytes]:
    match value:
        case bytes() as content if content:
            return keys.IMAGE, content
        case str() | os.PathLike() as path:
            return keys.IMAGE, _file(name, path)
        case {"path": path}:
            return keys.IMAGE, _file(name, path)
        case {"b64": str() | bytes() as text}:
            try:
                return keys.IMAGE, base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError) as error:
                raise InvalidValue(f"input {name!r}: 'b64' is not base64: {error}") from error
        case {"image": bytes() as content} if content:
            return keys.IMAGE, content
        case {"image": np.ndarray() as pixels}:
            return keys.IMAGE, _png(name, pixels)
        case {"string": str() as text}:
            return keys.STRING, json.dumps(text).encode()
        case {"sequence": list() | tuple() | None as items}:
            return keys.NESTED, _encoded(name, items, encode_nested)
        case _:
            raise InvalidValue(
                f"input {name!r}: empty bytes, or a dict with none of 'path' (file), 'b64' (text), "
                "'image' (bytes or ndarray), 'string' (text) and 'sequence' (list of arrays)"
            )


def _file(name: str, path: Any) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, TypeError, ValueError) as error:
        raise InvalidValue(f"input {name!r}: cannot read the image {path!r}: {error}") from error


def _png(name: str, pixels: Array) -> bytes:
    try:
        import cv2  # needed only by programs that send arrays as images
    except ImportError as error:
        raise InvalidValue(
            f"input {name!r}: an array is sent as an image by OpenCV; run: pip install opencv-python-headless"
        ) from error
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        raise InvalidValue(
            f"input {name!r}: an image is uint8 (height, width[, channels]), not {pixels.dtype} {list(pixels.shape)}"
        )
    try:
        ok, png = cv2.imencode(".png", pixels)
    except cv2.error as error:
        raise InvalidValue(f"input {name!r}: OpenCV cannot encode this image: {error}") from error
    if not ok:
        raise InvalidValue(f"input {name!r}: OpenCV cannot encode this image")
    return bytes(png.tobytes())
