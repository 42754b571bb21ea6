"""Sparse tensor of a JSON instance to the native fields of one input."""

import math
from typing import Any

import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.tensor_spec import MAX_DENSE_BYTES, TensorSpec
from cluster_serving.client.wire.tensors import Array, encode_tensor
from cluster_serving.frontend.values.json_numbers import MAX_RANK, flatten, natural, numbers


def sparse_fields(
    spec: TensorSpec | None, name: str, shape: list[Any], data: list[Any], indices: list[Any]
) -> list[bytes]:
    """Return `field, value, ...` of a sparse tensor.

    Args:
        spec: input of the model, or `None` to check nothing.
        name: name of the input on the wire.
        shape: dimensions of the dense tensor.
        data: values that are not zero.
        indices: a row of indices for each value, or a row of all values' indices for each dimension.

    Raises:
        CodecError: the tensor is not valid, or does not fit the model.
    """
    leaves, counted = flatten(name, data)
    values = natural(name, leaves) if spec is None else numbers(spec, leaves)
    if len(counted) != 1:
        raise CodecError(f"input {name!r}: the data of a sparse tensor are one list of numbers")
    if not 0 < len(shape) <= MAX_RANK or not all(type(dim) is int and dim > 0 for dim in shape):
        raise CodecError(f"input {name!r}: the shape of a sparse tensor is a list of whole numbers above 0")
    if math.prod(shape) * values.itemsize > MAX_DENSE_BYTES:
        raise CodecError(f"input {name!r}: a tensor of shape {shape} would have more than {MAX_DENSE_BYTES} bytes")
    if spec is not None:
        spec.fitted(np.broadcast_to(values[:1].reshape(-1) if values.size else values.dtype.type(0), shape))
    places = _places(name, indices, len(shape), values.size)
    outside = ((places < 0) | (places >= np.array(shape).reshape(-1, 1))).any(axis=0)
    if outside.any():
        at = places[:, int(outside.argmax())].tolist()
        raise CodecError(f"input {name!r}: the sparse index {at} lies outside of the shape {shape}")
    if len(shape) == values.size > 1:
        # Nodes read a square table by their `sparseLayout`. Repeating the last element makes the table longer and changes
        # nothing else.
        places, values = np.hstack((places, places[:, -1:])), np.append(values, values[-1:])
    wire_name = name.encode()
    return [
        keys.SPARSE_INDICES + wire_name,
        encode_tensor(places),
        keys.SPARSE_VALUES + wire_name,
        encode_tensor(values.view(np.uint8) if values.dtype == np.bool_ else values),
        keys.SPARSE_SHAPE + wire_name,
        encode_tensor(np.array(shape, np.int64)),
    ]


def _places(name: str, indices: Any, rank: int, count: int) -> Array:
    """Return the indices of a sparse tensor, int64 (rank, count)."""
    leaves, shape = flatten(name, indices)
    if not leaves and not count:
        return np.empty((rank, 0), np.int64)
    table = natural(name, leaves)
    if table.dtype != np.int64:
        raise CodecError(f"input {name!r}: the indices of a sparse tensor are whole numbers")
    if shape == (count, rank) or (rank == 1 and shape == (count,)):
        return np.ascontiguousarray(table.reshape(count, rank).T)
    if shape == (rank, count):
        return table.reshape(shape)
    raise CodecError(
        f"input {name!r}: indices of shape {list(shape)} for {count} values of a sparse tensor of rank {rank}; "
        f"they are a list of {count} lists of {rank}"
    )
