"""Tensors of a request to records, one for each row.

A record is one row, so that rows of many requests share a batch. All of the request is one record where a row is not defined:
each record is a call of the model (`batching: none`), or a user's `preprocess` reads the record.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import orjson

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.binding import like
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.tensors import Array, tensor_header
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.v2.datatypes import BYTES, described
from cluster_serving.frontend.v2.tensors import Tensor


class Rows(NamedTuple):
    """Records of a request. `stacked`: each result is a row of the answer. Otherwise the only result is the answer."""

    records: list[Fields]
    stacked: bool


class _Column(NamedTuple):
    """Values of one input for all rows.

    `size` is the batch dimension, or None for a tensor that is a row without it. `is_shared`: the only content belongs to all rows.
    """

    name: str
    field: bytes
    size: int | None
    contents: Callable[[], list[bytes]]
    is_shared: bool = False


def split(tensors: Mapping[str, Tensor], node: Heartbeat, most: int) -> Rows:
    """Return the records of a request.

    Args:
        tensors: tensors by name.
        node: node that describes the inputs of the model.
        most: largest number of records in one request.

    Raises:
        BadRequest: the model has other inputs, or takes other tensors, or the tensors have different numbers of rows.
        CodecError: a value would be lost in the model's dtype.
    """
    if node.raw:
        return Rows([[part for tensor in tensors.values() for part in _raw(tensor)]], stacked=False)
    axis = None if node.already_batched else 0
    specs = node.inputs or tuple(TensorSpec(name, "float32", None, axis) for name in tensors)
    if set(tensors) != {spec.name for spec in specs}:
        has = ", ".join(f"{tensor.name!r} {tensor.described}" for tensor in tensors.values())
        takes = ", ".join(f"{spec.name!r} {described(spec)}" for spec in specs)
        known = tuple(spec.name for spec in specs)
        slips = [(name, near) for name in tensors if name not in known and (near := like(name, known)) is not None]
        hint = f"; {slips[0][0]!r} is none of these, and the nearest is {slips[0][1]!r}" if slips else ""
        raise BadRequest(f"the request has the inputs {has[:2000]}; the model takes {takes}{hint}")
    columns = [_column(spec, tensors[spec.name], node.already_batched) for spec in specs]
    counts = {column.size for column in columns if not column.is_shared}
    if len(counts - {None}) > 1 or (None in counts and len(counts) > 1 and 1 not in counts):
        named = ", ".join(f"{column.name!r} {column.size or 'one, without a batch dimension'}" for column in columns)
        raise BadRequest(f"all inputs must have the same number of rows, and they have: {named}")
    rows = max(count or 1 for count in counts)
    if rows > most:
        raise BadRequest(f"the request has {rows} rows; at most {most} are taken at once (maxInstances)")
    contents = zip(*((column.contents() * (rows if column.is_shared else 1)) for column in columns), strict=True)
    records = [
        [part for column, content in zip(columns, row, strict=True) for part in (column.field, content)]
        for row in contents
    ]
    return Rows(records, stacked=counts != {None})


def _column(spec: TensorSpec, tensor: Tensor, calls: bool) -> _Column:
    if spec.is_text != (tensor.datatype == BYTES) or spec.is_nested:
        if spec.is_numeric:
            return _images(spec, tensor, calls and spec.batch_axis is None)
        raise _misfit(spec, tensor)
    size, row = _fit(spec, tensor)
    if calls:
        size, row = None, tensor.array.shape
    is_shared, array = spec.batch_axis is None and not calls, tensor.array
    if spec.takes_bytes and array.size == (size or 1) and {*map(type, array.flat)} == {bytes}:
        return _Column(spec.name, _field(keys.IMAGE, spec.name), size, array.reshape(-1).tolist, is_shared)
    if spec.is_text:
        array = _text(tensor)
    elif array.dtype != spec.dtype:
        array = spec.converted(array)
    rows = np.moveaxis(array, spec.batch_axis, 0) if size and spec.batch_axis else array.reshape((size or 1, *row))
    if spec.is_text:
        field = _field(keys.STRING, spec.name)
        return _Column(spec.name, field, size, lambda: [*map(orjson.dumps, rows.tolist())], is_shared)
    return _Column(spec.name, _field(_kind(array), spec.name), size, lambda: _messages(rows), is_shared)


def _fit(spec: TensorSpec, tensor: Tensor) -> tuple[int | None, tuple[int, ...]]:
    """Return the batch dimension of a tensor, or None, and the shape of its rows."""
    shape = tensor.array.shape
    if spec.batch_axis == 0 and spec.shape is None and shape:  # the protocol's tensors begin with the batch dimension
        if shape[0] == 0:
            raise _misfit(spec, tensor)
        return shape[0], shape[1:]
    if spec.batch_axis == 0 and spec.shape is not None and shape[:1] > (0,) and shape[1:] == spec.shape[1:]:
        return shape[0], shape[1:]  # as below, in a tenth of the time
    try:
        return spec.fitted(tensor.array)
    except CodecError as error:
        raise _misfit(spec, tensor) from error


def _misfit(spec: TensorSpec, tensor: Tensor) -> BadRequest:
    return BadRequest(f"input {spec.name!r} is {tensor.described}, and the model takes {described(spec)}")


def _images(spec: TensorSpec, tensor: Tensor, calls: bool) -> _Column:
    """Return a column of encoded images, one a row or the only one of a call, from BYTES for an input of numbers."""
    array = tensor.array
    if array.size == 0 or (calls and array.size > 1) or any(dim != 1 for dim in array.shape[1:]):
        raise BadRequest(
            f"input {spec.name!r} is {tensor.described}, and the model takes {described(spec)}, or BYTES [-1] with an "
            "encoded image for each row"
        )
    images: list[bytes] = []
    for element in array.reshape(-1):
        try:  # JSON has no bytes, so an image in JSON is base64
            images.append(element if isinstance(element, bytes) else base64.b64decode(element, validate=True))
        except (binascii.Error, ValueError) as error:
            raise BadRequest(
                f"input {spec.name!r}: in JSON an image is base64 text, and this is not: {error}"
            ) from error
    return _Column(
        spec.name, _field(keys.IMAGE, spec.name), len(images) if array.ndim and not calls else None, lambda: images
    )


def _text(tensor: Tensor) -> Array:
    """Return the elements of a tensor as `str` objects."""
    texts = np.empty(tensor.array.size, object)
    for at, element in enumerate(tensor.array.reshape(-1)):
        try:
            texts[at] = element.decode() if isinstance(element, bytes) else element
        except UnicodeDecodeError as error:
            raise BadRequest(f"input {tensor.name!r}: element {at} is not text in UTF-8: {error.reason}") from error
    return texts.reshape(tensor.array.shape)


def _raw(tensor: Tensor) -> tuple[bytes, bytes]:
    """Return a field for `preprocess`: an array, a text or nested lists of texts, or an image, which is no text in UTF-8."""
    if tensor.datatype != BYTES:
        [message] = _messages(tensor.array[np.newaxis])
        return _field(_kind(tensor.array), tensor.name), message
    if tensor.array.size == 1 and isinstance(only := tensor.array.item(), bytes):
        try:
            only.decode()
        except UnicodeDecodeError:
            return _field(keys.IMAGE, tensor.name), only
    texts = _text(tensor)
    return _field(keys.STRING, tensor.name), orjson.dumps(texts.item() if texts.size == 1 else texts.tolist())


def _field(kind: bytes, name: str) -> bytes:
    return kind + name.encode()


def _kind(array: Array) -> bytes:
    return keys.BOOL if array.dtype.kind == "b" else keys.TENSOR


def _messages(rows: Array) -> list[bytes]:
    """Return the tensor message of each row. The data are copied once."""
    wire = np.ascontiguousarray(rows.view(np.uint8) if rows.dtype.kind == "b" else rows)
    header, data = tensor_header(wire.dtype, wire.shape[1:]), wire.reshape(-1).view(np.uint8).data
    size = len(data) // len(wire)
    return [b"".join((header, data[row * size : (row + 1) * size])) for row in range(len(wire))]
