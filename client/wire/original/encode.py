"""Conversion of a program's values to the `data` field of a request in the original dialect.

| value | becomes |
|---|---|
| ndarray of numbers or bools | tensor, float32, of the same shape |
| `int`, `float`, numpy scalar | tensor, float32, of shape [1] |
| `str` or path object, `{"path": ...}` | the image file, read by OpenCV and encoded again as JPEG |
| `{"b64": text}` | image: the base64 text, unchanged |
| `bytes`, `{"image": ndarray}` | image: the encoded bytes, unchanged. An array (height, width[, BGR]) uint8 as JPEG |
| `list[str]` | the strings joined by `|`. A `|` within a string then looks like a separator |
| list of three ndarrays: indices, values, shape | sparse tensor: int32, float32, int32 |

The original does not take scalars, path objects, bytes and `{"image": ...}`. On the wire, a list of one string looks like an
image. A node decodes the list as an image if the string is the base64 of an image.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cluster_serving.client.errors import InvalidValue
from cluster_serving.client.wire.original.arrow_stream import StreamTemplate, write_stream
from cluster_serving.client.wire.original.base64_text import to_base64
from cluster_serving.client.wire.original.values import SparseTensor
from cluster_serving.client.wire.tensors import refuse_masked

# Encoded form of a value: a dense tensor, a sparse tensor (with the indices as given), or text.
_Column = NDArray[np.float32] | SparseTensor | str

_ROWS: Final = 4
_TENSOR: Final = pa.struct(
    [
        ("indiceData", pa.list_(pa.int32())),
        ("indiceShape", pa.list_(pa.int32())),
        ("data", pa.list_(pa.float32())),
        ("shape", pa.list_(pa.int32())),
    ]
)
_NO_NUMBERS: Final = np.empty(0, np.int32)


def encode_record(data: Mapping[str, object]) -> str:
    """Return the base64 text of the Arrow stream with one record.

    Args:
        data: value of each input by name, in the order of the model's inputs.

    Raises:
        InvalidValue: there are no inputs, or a value cannot be sent. The message names the input.
    """
    if not data:
        raise InvalidValue("a record needs at least one input")
    columns = {name: _column(name, value) for name, value in data.items()}
    dense = [column for column in columns.values() if isinstance(column, np.ndarray)]
    try:
        if len(dense) < len(columns):
            return to_base64(_stream(columns).to_pybytes()).decode()
        template = _dense_template(tuple((name, array.shape) for name, array in zip(columns, dense, strict=True)))
    except UnicodeEncodeError as error:
        raise InvalidValue(f"inputs {list(columns)}: a name or string is not valid Unicode: {error}") from error
    return template.fill([array.tobytes() for array in dense]).decode()


@lru_cache(maxsize=256)
def _dense_template(inputs: tuple[tuple[str, tuple[int, ...]], ...]) -> StreamTemplate:
    stream = _stream({name: np.zeros(shape, np.float32) for name, shape in inputs})
    batch = pa.ipc.open_stream(stream).read_next_batch()
    return StreamTemplate(stream, [column.field("data").values for column in batch.columns])


def _stream(columns: Mapping[str, _Column]) -> Any:
    rows = 1 if all(isinstance(column, str) for column in columns.values()) else _ROWS
    arrays: list[Any] = []
    for column in columns.values():
        if isinstance(column, str):
            arrays.append(pa.array([column] + [None] * (rows - 1), pa.string()))
        elif isinstance(column, SparseTensor):
            indices, values, shape = column
            arrays.append(_tensor_array(indices.ravel(), np.array(indices.shape), values, shape))
        else:
            arrays.append(_tensor_array(_NO_NUMBERS, _NO_NUMBERS, column.ravel(), column.shape))
    return write_stream([pa.RecordBatch.from_arrays(arrays, names=list(columns))])


def _tensor_array(*children: NDArray[Any] | tuple[int, ...]) -> Any:
    """Return four rows of the tensor type. Row `n` holds the list of child `n`, the remaining lists of the row are null."""
    columns: list[Any] = []
    for row, (child, field) in enumerate(zip(children, _TENSOR, strict=True)):
        values = pa.array(child, field.type.value_type)
        offsets = np.zeros(_ROWS + 1, np.int32)
        offsets[row + 1 :] = len(values)
        buffers = [pa.py_buffer(bytes([1 << row])), pa.py_buffer(offsets)]
        columns.append(pa.ListArray.from_buffers(field.type, _ROWS, buffers, null_count=_ROWS - 1, children=[values]))
    return pa.StructArray.from_arrays(columns, fields=list(_TENSOR))


def _column(name: str, value: object) -> _Column:
    match value:
        case np.ndarray():
            return _floats(name, value)
        case int() | float() | np.number() | np.bool_():
            return _floats(name, np.array([value]))
        case str() | os.PathLike():
            return _file(name, cast("str | os.PathLike[str]", value))
        case bytes() | bytearray() | memoryview():
            return to_base64(bytes(value)).decode()
        case list():
            return _list(name, cast("list[object]", value))
        case dict():
            return _image(name, cast("dict[str, object]", value))
        case _:
            raise InvalidValue(
                f"input {name!r}: Your request does not match any schema, please check. "
                f"(a {type(value).__name__} cannot be sent)"
            )


def _list(name: str, items: list[object]) -> SparseTensor | str:
    if not items:
        raise InvalidValue(f"input {name!r}: empty list is not supported")
    strings = [item for item in items if isinstance(item, str)]
    if len(strings) == len(items):
        return "|".join(strings)
    arrays: list[NDArray[Any]] = [item for item in items if isinstance(item, np.ndarray)]
    if len(arrays) < len(items):
        raise InvalidValue(
            f"input {name!r}: List of string and ndarray is supported,but your input does not match "
            f"(it holds {', '.join(sorted({type(item).__name__ for item in items}))})"
        )
    if len(arrays) != 3:
        raise InvalidValue(
            f"input {name!r}: Sparse Tensor must have list of ndarraywith length 3, "
            f"which represent indices, values, shape respectively (it has {len(arrays)})"
        )
    indices, values, shape = arrays
    dimensions = tuple(_integers(name, "shape", shape).ravel().tolist())
    return SparseTensor(_integers(name, "indices", indices), _floats(name, values).ravel(), dimensions)


def _floats(name: str, array: NDArray[Any]) -> NDArray[np.float32]:
    refuse_masked(name, array)
    if array.dtype == np.float32:
        return cast("NDArray[np.float32]", array)
    if array.dtype.kind not in "biuf":
        raise InvalidValue(
            f"input {name!r}: Your request does not match any schema, please check. "
            f"(an array of dtype {array.dtype} cannot be sent as float32)"
        )
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinity, as in the original
        return array.astype(np.float32)


def _integers(name: str, part: str, array: NDArray[Any]) -> NDArray[np.int32]:
    if array.dtype.kind in "biuf":
        with np.errstate(invalid="ignore"):
            integers = array.astype(np.int32)
        if np.array_equal(integers, array):
            return integers
    raise InvalidValue(f"input {name!r}: the {part} of a sparse tensor must be integers below 2**31")


def _image(name: str, image: dict[str, object]) -> str:
    match image:
        case {"path": str() | os.PathLike() as path}:
            return _file(name, cast("str | os.PathLike[str]", path))
        case {"b64": str() as text}:
            return text
        case {"b64": bytes() as text}:
            return text.decode("ascii", "replace")
        case {"image": np.ndarray() as pixels}:
            return _jpeg(name, pixels)
        case _:
            raise InvalidValue(
                f"input {name!r}: Your input dict must contain either 'path' or 'b64' key "
                "(a file name or base64 text), or 'image' (an ndarray)"
            )


def _file(name: str, path: str | os.PathLike[str]) -> str:
    cv2 = _opencv(name)
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise InvalidValue(f"input {name!r}: cannot read the image {os.fspath(path)!r}: {error}") from error
    # OpenCV raises an exception for an empty buffer, and returns None for any other content that is not an image.
    pixels = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR) if content else None
    if pixels is None:
        raise InvalidValue(f"input {name!r}: {os.fspath(path)!r} is not an image that OpenCV can read")
    return _jpeg(name, pixels)


def _jpeg(name: str, pixels: NDArray[Any]) -> str:
    cv2 = _opencv(name)
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or channels not in (1, 3) or not pixels.size:
        raise InvalidValue(
            f"input {name!r}: an image is uint8 (height, width, 3) in BGR order or (height, width), "
            f"not {pixels.dtype} {list(pixels.shape)}"
        )
    try:
        done, jpeg = cv2.imencode(".jpg", pixels)
    except cv2.error as error:
        raise InvalidValue(f"input {name!r}: OpenCV cannot encode this image: {error}") from error
    if not done:  # 65500 pixels a side are OpenCV's limit for JPEG
        raise InvalidValue(f"input {name!r}: OpenCV cannot encode an image of {list(pixels.shape)} as JPEG")
    return to_base64(jpeg.tobytes()).decode()


def _opencv(name: str) -> Any:
    try:
        import cv2  # needed only by programs that send image files or arrays
    except ImportError as error:
        raise InvalidValue(
            f"input {name!r}: images are encoded by OpenCV: pip install opencv-python-headless"
        ) from error
    return cv2
