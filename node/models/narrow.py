"""Numbers of ONNX that numpy lacks: bfloat16 as float32, the bits of float8 as uint8, four and two bits as whole bytes.

ONNX Runtime takes and gives such tensors only as values of its own, whose memory is read and written here.
"""

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from cluster_serving.node.models.base import Array


class Narrow(NamedTuple):
    """A narrow dtype: its number in ONNX, the numpy dtype of its values outside, and the bits of an element."""

    number: int
    dtype: str
    bits: int


NARROW = {
    "tensor(bfloat16)": Narrow(16, "float32", 16),
    "tensor(float8e4m3fn)": Narrow(17, "uint8", 8),
    "tensor(float8e4m3fnuz)": Narrow(18, "uint8", 8),
    "tensor(float8e5m2)": Narrow(19, "uint8", 8),
    "tensor(float8e5m2fnuz)": Narrow(20, "uint8", 8),
    "tensor(uint4)": Narrow(21, "uint8", 4),
    "tensor(int4)": Narrow(22, "int8", 4),
    "tensor(float8e8m0)": Narrow(24, "uint8", 8),
    "tensor(uint2)": Narrow(25, "uint8", 2),
    "tensor(int2)": Narrow(26, "int8", 2),
}
"""Narrow dtypes by their name in ONNX Runtime."""


def run(
    session: ort.InferenceSession,
    batch: Mapping[str, Array],
    inputs: Mapping[str, Narrow],
    outputs: Mapping[str, Narrow],
    names: Sequence[str],
) -> list[Array]:
    """Run a session whose `inputs` or `outputs` are narrow, and return the outputs called `names`."""
    values: dict[str, Any] = {}
    for name, array in batch.items():
        if name in inputs:
            packed = pack(array, inputs[name])
            values[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(packed, inputs[name].number)
        else:
            values[name] = ort.OrtValue.ortvalue_from_numpy(array)
    results: Any = session.run_with_ort_values(list(names), values)
    arrays: list[Array] = []
    for name, value in zip(names, results, strict=True):
        if name in outputs:
            shape: list[int] = value.shape()
            size = -(-math.prod(shape) * outputs[name].bits // 8)
            stored = ctypes.string_at(value.data_ptr(), size) if size else b""
            arrays.append(unpack(stored, shape, outputs[name]))
        else:
            arrays.append(value.numpy())
    return arrays


def pack(array: Array, narrow: Narrow) -> Array:
    """Return the array as ONNX Runtime stores it, in the first bytes of an array of the same shape."""
    if narrow.bits == 16:
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32).reshape(array.shape)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)  # to nearest, halves to even
        rounded[np.isnan(array)] = 0x7FC0
        return rounded
    if narrow.bits == 8:
        return np.ascontiguousarray(array).view(np.uint8).reshape(array.shape)
    a_byte, mask = 8 // narrow.bits, (1 << narrow.bits) - 1
    flat = array.reshape(-1).view(np.uint8) & mask
    padded = np.zeros(-(-flat.size // a_byte) * a_byte, np.uint8)
    padded[: flat.size] = flat
    packed = np.zeros(len(padded) // a_byte, np.uint8)
    for place in range(a_byte):
        packed |= padded[place::a_byte] << (place * narrow.bits)
    stored = np.zeros(array.shape, np.uint8)
    stored.reshape(-1)[: packed.size] = packed
    return stored


def unpack(stored: bytes, shape: Sequence[int], narrow: Narrow) -> Array:
    """Return the array of a shape that ONNX Runtime has stored in these bytes."""
    if narrow.bits == 16:
        return (np.frombuffer(stored, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    packed = np.frombuffer(stored, np.uint8)
    if narrow.bits == 8:
        return packed.reshape(shape)
    a_byte, mask = 8 // narrow.bits, (1 << narrow.bits) - 1
    parts = [(packed >> (place * narrow.bits)) & mask for place in range(a_byte)]
    flat = np.stack(parts, axis=-1).reshape(-1)[: math.prod(shape)]
    if narrow.dtype == "int8":  # the highest bit is the sign
        sign = 1 << (narrow.bits - 1)
        return ((flat ^ sign).astype(np.int8) - np.int8(sign)).reshape(shape)
    return flat.reshape(shape)
