"""Conversion of a record's Arrow columns to values, for every writer of the original dialect.

The children of a tensor column are read flattened, because each writer spreads the children over different rows:

    Python client       four rows with one list each
    JVM front end       one row with a list for each element
    `enqueue_tensor`    a row for `data` and a row for `shape` (int64), in the Arrow file format, with a batch for each tensor

Plain numeric columns are scalars.

The positions of the elements follow from the two headers of the stream. All records with the same names and sizes have the same
headers:

    | schema message | record batch metadata | body: ... data ... shape ... |
    |<--------------- headers -------------->|

The layout that Arrow found and checked for one record of dense tensors is therefore kept, and later records are read without
Arrow: 16 us instead of 50 us for 128 floats, of which base64 takes 5 us.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.original.arrow_stream import (
    ARROW_ERRORS,
    MAX_LAYOUTS,
    headers_of,
    is_file,
    position_in,
    read_batches,
)
from cluster_serving.client.wire.original.base64_text import from_base64
from cluster_serving.client.wire.original.values import (
    MAX_STRINGS,
    DenseTensor,
    EncodedImage,
    OriginalValue,
    SparseLayout,
    StringTensor,
    check_shape,
    dense_value,
    is_image,
    sparse_value,
    text_value,
)

_ITEM_BYTES = 4


class _DenseColumn(NamedTuple):
    """Positions in bytes of a dense tensor's elements (float32) and dimensions (int32) in a stream."""

    name: str
    data_at: int
    size: int
    shape_at: int
    rank: int
    end: int  # of elements and dimensions

    def read(self, message: bytes) -> DenseTensor:
        shape = np.frombuffer(message, "<i4", self.rank, self.shape_at).tolist()
        return dense_value(self.name, np.frombuffer(message, "<f4", self.size, self.data_at), shape)


_layouts: dict[bytes, list[_DenseColumn]] = {}


def decode_record(data: bytes | str, sparse_layout: SparseLayout = "ndim-major") -> list[tuple[str, OriginalValue]]:
    """Return the inputs of one record, by name, in the order of the model's inputs.

    Args:
        data: the record's `data` field: base64 of an Arrow stream or file. The first batch of a stream is the record. Several
            batches of a file are the tensors t0, t1, ... of the record.
        sparse_layout: layout of the indices of a sparse tensor with as many values as dimensions.

    Raises:
        CodecError: the record is malformed. The message names the column.
    """
    message = from_base64(data, "the record's data field")
    headers = headers_of(message)
    layout = _layouts.get(headers)
    if layout is not None and all(column.end <= len(message) for column in layout):
        return [(column.name, column.read(message)) for column in layout]
    batches = read_batches(message)
    batch = next(batches, None)
    if batch is None:
        raise CodecError("the record's Arrow stream holds no batch")
    more = list(batches) if is_file(message) else []
    if more:
        tensors = [(f"t{index}", each) for index, each in enumerate([batch, *more])]
        return [
            (name, _column_value(name, each.columns[0], sparse_layout)) for name, each in tensors if each.num_columns
        ]
    if batch.num_columns == 0 or batch.num_rows == 0:
        raise CodecError(f"the record's batch has {batch.num_columns} columns and {batch.num_rows} rows")
    if len(set(batch.schema.names)) < batch.num_columns:
        raise CodecError(f"the record has two columns of the same name: {batch.schema.names}")
    values = [
        (name, _column_value(name, column, sparse_layout))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    if headers and all(isinstance(value, DenseTensor) for _, value in values):
        _keep_layout(headers, message, batch)
    return values


def _keep_layout(headers: bytes, message: bytes, batch: Any) -> None:
    layout: list[_DenseColumn] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not pa.types.is_struct(column.type):
            return
        data, shape = column.field("data").values, column.field("shape").values
        if data.type != pa.float32() or shape.type != pa.int32():
            return
        data_at, shape_at = _offset(data, message), _offset(shape, message)
        end = max(data_at + len(data) * _ITEM_BYTES, shape_at + len(shape) * _ITEM_BYTES)
        layout.append(_DenseColumn(name, data_at, len(data), shape_at, len(shape), end))
    # Arrow copies data that need a conversion, such as a foreign byte order. The copy is not in the message.
    if any(min(column.data_at, column.shape_at) < 0 or column.end > len(message) for column in layout):
        return
    if len(_layouts) >= MAX_LAYOUTS:
        _layouts.clear()
    _layouts[headers] = layout


def _offset(leaf: Any, message: bytes) -> int:
    if not len(leaf):
        return 0
    at = position_in(message, leaf.buffers()[1])
    return at if at < 0 else at + leaf.offset * _ITEM_BYTES


def _column_value(name: str, column: Any, sparse_layout: SparseLayout) -> OriginalValue:
    kind = column.type
    try:
        if pa.types.is_struct(kind):
            return _tensor_value(name, column, sparse_layout)
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            content: str | bytes | None = column[0].as_py()
            if content is None:
                raise CodecError(f"column {name!r}: its first row is null")
            if isinstance(content, bytes):
                if is_image(content):
                    return EncodedImage(content)
                content = content.decode()
            if "|" in content:
                _check_count(name, content.count("|") + 1)
                strings = content.split("|")
                return StringTensor(strings, (len(strings),))
            return text_value(name, content)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return dense_value(name, _numbers(name, column.slice(0, 1)), (1,))
    except CodecError:
        raise
    except ARROW_ERRORS as error:
        raise CodecError(f"column {name!r}: {error}") from error
    raise CodecError(f"column {name!r} has type {kind}, which is neither a tensor, text nor a number")


def _check_count(name: str, strings: int) -> None:
    if strings > MAX_STRINGS:
        raise CodecError(f"column {name!r} holds {strings} strings; at most {MAX_STRINGS} are read")


def _tensor_value(name: str, column: Any, sparse_layout: SparseLayout) -> OriginalValue:
    leaves: dict[str, Any] = {}  # all elements of all lists of a field, by the field's name
    for index, field in enumerate(column.type):
        lists = column.field(index)
        if not pa.types.is_list(field.type):
            raise CodecError(f"column {name!r}: field {field.name} has type {field.type}; it must be a list")
        leaf = lists.values
        if leaf.null_count:
            raise CodecError(f"column {name!r}: field {field.name} holds nulls")
        leaves[field.name] = leaf
    if len(leaves) < column.type.num_fields:
        raise CodecError(f"column {name!r} has two fields of the same name")
    if "data" not in leaves or "shape" not in leaves:
        raise CodecError(f"column {name!r} has fields {sorted(leaves)}; a tensor has data and shape")
    shape = _dimensions(name, leaves["shape"])
    data = leaves["data"]
    if pa.types.is_string(data.type):
        _check_count(name, len(data))
        return StringTensor(data.to_pylist(), check_shape(name, shape, len(data)))
    indices_shape = _dimensions(name, leaves["indiceShape"]) if "indiceShape" in leaves else []
    if not indices_shape:
        return dense_value(name, _numbers(name, data), shape)
    if "indiceData" not in leaves:
        raise CodecError(f"column {name!r} has indiceShape without indiceData")
    indices = _numbers(name, leaves["indiceData"])
    if indices.dtype.kind not in "iu":
        raise CodecError(f"column {name!r}: indices of type {indices.dtype}; they must be integers")
    return sparse_value(name, indices, indices_shape, _numbers(name, data), shape, sparse_layout)


def _numbers(name: str, leaf: Any) -> NDArray[Any]:
    if not (pa.types.is_integer(leaf.type) or pa.types.is_floating(leaf.type)):
        raise CodecError(f"column {name!r} holds {leaf.type} where numbers are expected")
    if leaf.null_count:
        raise CodecError(f"column {name!r}: its first row is null")
    numbers: NDArray[Any] = leaf.to_numpy()
    return numbers


def _dimensions(name: str, leaf: Any) -> list[int]:
    numbers = _numbers(name, leaf)
    if numbers.dtype.kind not in "iu":
        raise CodecError(f"column {name!r}: a shape of type {numbers.dtype}; it must be of integers")
    dimensions: list[int] = numbers.tolist()
    return dimensions
