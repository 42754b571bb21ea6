"""Nested lists of JSON numbers to arrays.

A JSON number has no dtype: 1, 1.0 and 16777217 are float32 where the model takes float32, rounded like any decimal. For a model
of whole numbers 1.0 is 1, and 1.5 or a number out of range is refused.
"""

import math
from array import array
from itertools import chain
from typing import Any

import numpy as np

from cluster_serving.client.errors import CodecError
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.tensors import Array

MAX_RANK = 64

# `array` takes a list of numbers at the speed of numpy. Unlike numpy, `array` takes neither null nor text that looks like
# numbers.
PACKED = {
    "float32": "f",
    "float64": "d",
    "float16": "d",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
}
"""Type code of the `array.array` that gathers numbers, by dtype of the model."""

_WORDS = {type(None): "null", str: "text", dict: "an object", list: "a list"}
_LARGEST_EXACT = 2.0**53


def flatten(name: str, value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the leaves of nested lists in C order, and their shape. A value that is no list has the shape [].

    Raises:
        CodecError: the lists are ragged, or nested too deeply. Lists among the leaves are left to `numbers`.
    """
    shape: list[int] = []
    level = [value]
    while level and type(level[0]) is list:
        if len(shape) == MAX_RANK:
            raise CodecError(f"input {name!r} has lists nested in more than {MAX_RANK} levels")
        kinds = {*map(type, level)}
        if kinds != {list}:
            raise _ragged(name, "lists beside values that are not lists")
        lengths = {*map(len, level)}
        if len(lengths) > 1:
            raise _ragged(name, f"lists of {min(lengths)} and of {max(lengths)} side by side")
        shape.append(len(level[0]))
        level = list(chain.from_iterable(level))
    return level, tuple(shape)


def numbers(spec: TensorSpec, leaves: list[Any]) -> Array:
    """Return numbers in the dtype of an input, flat.

    Raises:
        CodecError: a leaf is no number, or would be lost in the dtype.
    """
    code = PACKED.get(spec.dtype, "")
    if code:
        dtype = np.float64 if code == "d" else np.dtype(spec.dtype)
        try:
            found = np.frombuffer(array(code, leaves), dtype) if leaves else np.empty(0, dtype)
        except (TypeError, OverflowError):
            pass
        else:
            # Exact: equal to the numbers sent. A number beyond float32 has become infinite.
            is_exact = found.dtype == spec.dtype and (spec.dtype != "float32" or bool(np.isfinite(found).all()))
            return found if is_exact else spec.converted(np.array(leaves, np.float64))
        if code not in "fd" and {*map(type, leaves)} <= {int, float, bool}:
            for leaf in leaves:
                # Beyond 2**53, JSON text and float64 may differ.
                if isinstance(leaf, float) and not (math.fabs(leaf) <= _LARGEST_EXACT and leaf.is_integer()):
                    raise CodecError(f"input {spec.name!r} takes {spec.dtype}, and {leaf!r} would be lost in it")
            leaves = [int(leaf) if isinstance(leaf, float) else leaf for leaf in leaves]
    return spec.converted(natural(spec.name, leaves))


def natural(name: str, leaves: list[Any]) -> Array:
    """Return numbers or bools in their natural dtype, flat: bool, int64, uint64 or float64.

    Raises:
        CodecError: a leaf is no number.
    """
    kinds = {*map(type, leaves)}
    if others := kinds - {int, float, bool}:
        if list in others:
            raise _ragged(name, "lists beside values that are not lists")
        raise CodecError(f"input {name!r} holds {' and '.join(sorted(_WORDS[each] for each in others))} among numbers")
    if kinds == {bool}:
        return np.array(leaves, np.bool_)
    if float in kinds or not leaves:
        return np.array(leaves, np.float64)
    try:
        return np.array(leaves, np.int64)
    except OverflowError:
        return np.array(leaves, np.uint64 if min(leaves) >= 0 else np.float64)


def _ragged(name: str, found: str) -> CodecError:
    return CodecError(f"input {name!r} is a ragged list: {found}")
