"""From the outcomes in a slot to the fields that clients read, in the dialect that each of them spoke."""

from collections.abc import Iterator
from functools import lru_cache

import msgspec
import numpy as np

from cluster_serving.client import keys, original
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.wire import Array, tensor_header
from cluster_serving.node.slot import BATCHED, ORIGINAL, Outcome, Placed, Row, Slot, array_at, cut

Fields = list[bytes]

_NO_OUTCOME = (ErrorCode.INFERENCE_FAILED, "the worker gave no outcome for this record")


class Results:
    """Makes the results of one job's records."""

    def __init__(self, job: str, node: str) -> None:
        self._prefix = keys.result_prefix(job).encode()
        self._node = node

    def of(self, slot: Slot) -> Iterator[tuple[bytes, Row, Fields]]:
        """For each record of a slot: the key that its result goes to, its row, and `field, value, ...`."""
        table = slot.table()
        found: list[Fields | None] = [None] * slot.rows
        flags = {row.place: row.flags for row in table if row.flags}
        outcomes = slot.outcomes()
        for outcome in outcomes:
            try:
                made = list(_fields(slot, outcome, flags))
            except Exception as fault:  # a result that cannot be encoded must not stop the others
                made = [_error((ErrorCode.INFERENCE_FAILED, cut(str(fault))), flags.get(r, 0)) for r in outcome.rows]
            for place, fields in zip(outcome.rows, made, strict=True):
                found[place] = fields
        receipt = self._receipt(slot, outcomes)
        for row in table:
            answer = found[row.place] if row.place >= 0 else None
            if answer is None:
                answer = _error(row.error or _NO_OUTCOME, row.flags)
            if not row.flags & ORIGINAL:
                answer += (keys.RECEIPT, b'{"entry":"%b",%b' % (row.id, receipt))
            if row.reply:
                yield row.reply, row, [keys.URI, row.uri, *answer]
            else:
                yield self._prefix + row.uri, row, answer

    def _receipt(self, slot: Slot, outcomes: list[Outcome]) -> bytes:
        """The end of the JSON object that says how a batch went; milliseconds."""
        filled, started, ended = slot.times_us
        receipt: dict[str, object] = {
            "node": self._node,
            "batch": slot.rows,
            "filled_ms": filled / 1000,
            "wait_ms": max(started - filled, 0) / 1000,
            "run_ms": max(ended - started, 0) / 1000,
        }
        names = next(([placed.name for placed in outcome.outputs] for outcome in outcomes if outcome.outputs), [])
        if len(names) > 1:
            receipt["outputs"] = names
        return msgspec.json.encode(receipt)[1:]


def _fields(slot: Slot, outcome: Outcome, flags: dict[int, int]) -> Iterator[Fields]:
    """The fields of each row of an outcome."""
    if outcome.error is not None:
        for row in outcome.rows:
            yield _error(outcome.error, flags.get(row, 0))
    elif outcome.values:
        for start, length in outcome.values:
            yield [keys.VALUE, bytes(slot.outputs[start : start + length])]
    elif any(row in flags for row in outcome.rows):
        for index, row in enumerate(outcome.rows):
            arrays = {placed.name: _row(slot, placed, index) for placed in outcome.outputs}
            yield _uncommon(arrays, flags.get(row, 0))
    else:
        yield from _common(slot, outcome)


def _common(slot: Slot, outcome: Outcome) -> Iterator[Fields]:
    """Native rows without a batch dimension: header and bytes, no array is made."""
    outputs = slot.outputs
    heads = [(*_head(placed.name, placed.dtype, placed.row_shape), placed.offset) for placed in outcome.outputs]
    for index in range(len(outcome.rows)):
        fields: Fields = []
        for field, header, size, offset in heads:
            start = offset + index * size
            fields += (field, header + outputs[start : start + size])
        yield fields


@lru_cache(maxsize=1024)
def _head(name: str, dtype: str, shape: tuple[int, ...]) -> tuple[bytes, bytes, int]:
    """Field name, header of the tensor message, and bytes of data of one row."""
    kind = np.dtype(dtype)
    field = (keys.BOOL if kind.kind == "b" else keys.TENSOR) + name.encode()
    wire = np.dtype(np.uint8) if kind.kind == "b" else kind
    return field, tensor_header(wire, shape), kind.itemsize * int(np.prod(shape, dtype=np.int64))


def _row(slot: Slot, placed: Placed, index: int) -> Array:
    size = np.dtype(placed.dtype).itemsize * int(np.prod(placed.row_shape, dtype=np.int64))
    return array_at(slot.outputs, placed.dtype, placed.row_shape, placed.offset + index * size)


def _uncommon(arrays: dict[str, Array], flags: int) -> Fields:
    if flags & BATCHED:
        arrays = {name: array[np.newaxis] for name, array in arrays.items()}
    if flags & ORIGINAL:
        return [keys.VALUE, original.encode_result(list(arrays.values()))]
    fields: Fields = []
    for name, array in arrays.items():
        field, header, _ = _head(name, array.dtype.str, array.shape)
        fields += (field, header + array.tobytes())
    return fields


def _error(error: tuple[str, str], flags: int) -> Fields:
    """The original's clients read the three characters NaN and nothing else; the reason stands beside them."""
    code, message = error
    document = msgspec.json.encode({"code": code, "message": message})
    return [keys.VALUE, b"NaN", keys.ERROR, document] if flags & ORIGINAL else [keys.ERROR, document]
