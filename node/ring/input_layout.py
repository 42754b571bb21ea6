"""Layout of a batch's inputs in a slot.

    | input 0: capacity x row | input 1: capacity x row | ... | heap: contents of variable length, one after another |

All rows of a slot share one signature (kind, dtype and shape of each input), so each tensor input is one contiguous array
(rows, *row_shape). Images and text lie in the heap, and the row table holds their positions.
"""

import math
from collections.abc import Sequence, Sized

import msgspec
import numpy as np

from cluster_serving.node.ring.slot import LARGEST_ROW_ENTRY, SIGNATURE_BYTES

Signature = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Kind, dtype and row shape of each model input.

A `tensor` is one row of the model's batch. A `tensor:<digest>` is shared by the rows of a batch: the digest of its content is
equal for all of them. A `padded` is a row of variable length, which is -1 in its shape. A `whole`
is a call by itself, and its shape is that of the whole tensor. An `image`, a `string`, `strings` (the text of a call), a `nested`
value and a `record` (all inputs in one) have a variable length, and neither dtype nor shape.
"""

_ALIGNMENT = 64
_IN_PLACE = ("tensor", "whole")
# A row table entry holds the position of each input in the heap, in up to 19 bytes, beside a uri and a reply stream of 4 KiB
# each.
_MOST_IN_HEAP = (LARGEST_ROW_ENTRY - (9 << 10)) // 19


class InputArea(msgspec.Struct, frozen=True, array_like=True):
    """Area of one input, for all rows.

    Attributes:
        kind: kind of the input, and with `dtype` and `row_shape` its part of the `Signature`.
        dtype: numpy's name of the dtype.
        row_shape: shape of one row.
        offset: first byte of the area in the inputs of a slot.
        row_bytes: bytes of one row. 0: the input is in the heap.
    """

    kind: str
    dtype: str
    row_shape: tuple[int, ...]
    offset: int
    row_bytes: int

    @property
    def in_heap(self) -> bool:
        """True when the input has a variable length."""
        return self.kind not in _IN_PLACE


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """Positions of the inputs of a batch.

    Attributes:
        capacity: largest number of rows. 0: not even one row fits.
        heap: first byte of the heap in the inputs of a slot.
        inputs: area of each model input.
    """

    capacity: int
    heap: int
    inputs: list[InputArea]

    @property
    def has_heap(self) -> bool:
        """True when any input has a variable length."""
        return any(area.in_heap for area in self.inputs)

    def heap_bytes(self, contents: Sequence[Sized]) -> int:
        """Return the bytes of the heap that one record takes."""
        pairs = zip(contents, self.inputs, strict=True)
        return sum(len(content) for content, area in pairs if area.in_heap)

    def fits(self, contents: Sequence[Sized], slot_bytes: int) -> bool:
        """Return whether a record fits into an empty slot."""
        return self.capacity > 0 and self.heap + self.heap_bytes(contents) <= slot_bytes


def plan(signature: Signature, batch: int, slot_bytes: int) -> Layout:
    """Return the layout of batches of one signature: as many rows as fit, at most `batch`.

    Inputs of variable length get at least half of the slot. A model that takes any number of inputs may be sent more inputs than
    a slot has room to describe. In this case no row fits.
    """
    signature = tuple((kind.partition(":")[0], dtype, shape) for kind, dtype, shape in signature)
    sizes = [
        math.prod(shape) * np.dtype(dtype).itemsize if kind in _IN_PLACE else 0 for kind, dtype, shape in signature
    ]
    has_heap = any(kind not in _IN_PLACE for kind, _, _ in signature)
    room = (slot_bytes // 2 if has_heap else slot_bytes) - _ALIGNMENT * len(signature)
    capacity = max(0, min(batch, room // max(sum(sizes), 1)))
    areas: list[InputArea] = []
    at = 0
    for (kind, dtype, shape), size in zip(signature, sizes, strict=True):
        areas.append(InputArea(kind, dtype, shape, at, size))
        at += -(-capacity * size // _ALIGNMENT) * _ALIGNMENT
    layout = Layout(capacity, at, areas)
    in_heap = sum(area.in_heap for area in areas)
    if capacity and (in_heap > _MOST_IN_HEAP or len(encode_layout(layout)) > SIGNATURE_BYTES):
        return Layout(0, at, areas)
    return layout


encode_layout = msgspec.msgpack.Encoder().encode
decode_layout = msgspec.msgpack.Decoder(Layout).decode
