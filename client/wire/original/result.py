"""Results in the original dialect: outputs to the `value` field of a result hash, and back.

A value is the base64 text of an Arrow stream, the text that a filter made, or `NaN` for a failed record. Arrow streams hold one
batch for each output:

    data: float32    the elements, C order
    shape: int32     the dimensions, then nulls: as many rows as there are elements

Therefore a shape with more dimensions than elements cannot be written whole, and the shape of an output without elements cannot
be written at all.
"""

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.original.arrow_stream import (
    MAX_LAYOUTS,
    StreamTemplate,
    headers_of,
    position_in,
    read_batches,
    write_stream,
)
from cluster_serving.client.wire.original.base64_text import from_base64
from cluster_serving.client.wire.original.values import MAX_RANK

Shape = tuple[int, ...]
ResultValue = NDArray[np.float32] | list[NDArray[np.float32]] | list[Any] | str
"""One output, a list of several outputs, the rows of a filter's text, or a text: `NaN`, `[]` (no result), any other text."""

_SCHEMA: Final = pa.schema([("data", pa.float32()), ("shape", pa.int32())])
_STREAM_START = "/////"  # the continuation marker in base64. No filter's text begins with /////
# For a larger output, the shape column is too long to be kept for each shape, and costs little compared to the data.
_MAX_KEPT_ELEMENTS = 1 << 14


def encode_result(outputs: Sequence[NDArray[Any]]) -> bytes:
    """Return the base64 text of the Arrow stream with a record's outputs.

    Args:
        outputs: any shapes, numbers or bools, sent as float32.

    Raises:
        CodecError: there are no outputs, or an output does not hold numbers.
    """
    arrays: list[NDArray[np.float32]] = []
    for output in outputs:
        if output.dtype == np.float32:
            arrays.append(output)
        elif output.dtype.kind in "biuf":
            with np.errstate(over="ignore"):  # a number too large for float32 becomes infinity
                arrays.append(output.astype(np.float32))
        else:
            raise CodecError(f"an output of dtype {output.dtype} cannot be sent in the original dialect")
    shapes = tuple(array.shape for array in arrays)
    small = sum(array.size for array in arrays) <= _MAX_KEPT_ELEMENTS
    template = _template(shapes) if small else _make_template(shapes)
    return template.fill([array.tobytes() for array in arrays])


def _make_template(shapes: tuple[Shape, ...]) -> StreamTemplate:
    if not shapes:
        raise CodecError("a record without outputs cannot be sent")
    batches: list[Any] = []
    for shape in shapes:
        rows = math.prod(shape)
        # The shape is cut to `rows` dimensions. Dimensions of 1 are left out, from the end. The original cuts any dimension at
        # the end. The result is the same, except for shapes like (1, 1, 2), where the cut of the original makes an unreadable
        # result.
        dimensions = list(shape)
        at = len(dimensions)
        while len(dimensions) > rows and at:
            at -= 1
            if dimensions[at] == 1:
                del dimensions[at]
        cells = [*dimensions, *[None] * rows][:rows]
        columns = [np.zeros(rows, np.float32), pa.array(cells, pa.int32())]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
    stream = write_stream(batches)
    return StreamTemplate(stream, [batch.column(0) for batch in pa.ipc.open_stream(stream)])


_template = lru_cache(maxsize=128)(_make_template)


def decode_result(value: bytes | str) -> ResultValue:
    """Return the content of the `value` field of a result.

    Returns:
        For an Arrow stream the output, or the list of several outputs. For the text of `topN` or `pickTopN` the list of rows
        (`[[index, value], ...]`), or for several outputs a list of lists of rows. Any other text unchanged: `NaN` for a failed
        record, `[]` for no result.

    Raises:
        CodecError: the value begins like an Arrow stream, but is malformed.
    """
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if text.startswith("["):
        try:
            outputs = _lists(text)
        except (ValueError, RecursionError):
            return text
        if outputs == [[]]:
            return text
        return outputs[0] if len(outputs) == 1 else outputs
    try:
        return get_ndarray_from_b64(text)
    except CodecError:
        if text.startswith(_STREAM_START):
            raise
        return text


def _lists(text: str) -> list[Any]:
    """Return the lists in the text of a filter, one for each output, with or without commas between rows."""
    try:
        return [json.loads(text)]
    except ValueError:  # not the first way, because text in a list may hold ][
        outputs: list[Any] = json.loads(f"[{text.replace('][', '],[')}]")
        return outputs


class _Layout(NamedTuple):
    """Positions in bytes of the output in a result of `length` bytes.

    The first `rank` rows have a dimension, and `marks` are the bits of the rows that say so. Empty: every row has a dimension.
    """

    length: int
    data_at: int
    size: int
    shape_at: int
    rank: int
    marks_at: int
    marks: bytes


_layouts: dict[bytes, _Layout] = {}


def get_ndarray_from_b64(text: bytes | str) -> NDArray[np.float32] | list[NDArray[np.float32]]:
    """Return the output in a base64 Arrow stream, or the list of several outputs.

    Raises:
        CodecError: the text is not an Arrow stream of outputs.
    """
    message = from_base64(text, "the result")
    headers = headers_of(message)
    layout = _layouts.get(headers)
    if layout and layout.length == len(message) and message.startswith(layout.marks, layout.marks_at):
        values = np.frombuffer(message, "<f4", layout.size, layout.data_at).copy()
        return restore_shape(values, np.frombuffer(message, "<i4", layout.rank, layout.shape_at).tolist())
    batches = list(read_batches(message))
    outputs = [get_ndarray_from_record_batch(batch) for batch in batches]
    if not outputs:
        raise CodecError("the result's Arrow stream holds no batch")
    if len(outputs) > 1:
        return outputs
    if headers and outputs[0].size:
        _keep_layout(headers, message, batches[0])
    return outputs[0]


def _keep_layout(headers: bytes, message: bytes, batch: Any) -> None:
    """Keep the positions that Arrow has found and checked. All results of one shape have the same headers."""
    data, shape = batch.columns[:2]
    rows, rank = len(shape), len(shape) - shape.null_count
    marks = ((1 << rank) - 1).to_bytes((rows + 7) // 8, "little") if shape.null_count else b""
    data_at, shape_at, marks_at = (
        position_in(message, buffer) for buffer in (data.buffers()[1], *shape.buffers()[::-1])
    )
    if min(data_at, shape_at) < 0 or not message.startswith(marks, max(marks_at, 0)):
        return
    if len(_layouts) >= MAX_LAYOUTS:
        _layouts.clear()
    _layouts[headers] = _Layout(len(message), data_at, rows, shape_at, rank, max(marks_at, 0), marks)


def get_ndarray_from_record_batch(batch: Any) -> NDArray[np.float32]:
    """Return the output in one record batch. The first column holds the elements, the second column the dimensions.

    Raises:
        CodecError: the batch does not begin with two valid columns of elements and dimensions.
    """
    if [column.type for column in batch.columns[:2]] != [pa.float32(), pa.int32()]:
        raise CodecError(
            f"a result has a float32 and an int32 column, not {[str(kind) for kind in batch.schema.types]}"
        )
    data, shape = batch.columns[:2]
    if data.null_count:
        raise CodecError("the result's data column holds nulls")
    return restore_shape(data.to_numpy().copy(), shape.drop_null().to_numpy().tolist())


def restore_shape(values: NDArray[Any], dimensions: Sequence[int]) -> NDArray[Any]:
    """Return flat values in the shape of an output, as far as a result keeps the shape.

    Zeros are left out of the dimensions, as the original's clients do. A shape that was cut to as many dimensions as elements
    gets one more dimension for the remaining elements.

    Raises:
        CodecError: the dimensions do not fit the number of values.
    """
    if values.size == 0:
        return values
    shape = [dimension for dimension in dimensions if dimension]
    if len(shape) > MAX_RANK:
        raise CodecError(f"the result's shape has {len(shape)} dimensions")
    size = math.prod(shape)
    if len(shape) == values.size and 0 < size < values.size and values.size % size == 0:
        shape.append(values.size // size)
        size = values.size
    if size != values.size or min(shape, default=1) < 0:
        raise CodecError(f"the result has {values.size} elements and shape {list(dimensions)}")
    try:
        return values.reshape(shape)
    except ValueError as error:  # more dimensions than numpy allows
        raise CodecError(f"the result's shape has {len(shape)} dimensions: {error}") from error
