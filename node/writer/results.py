"""Encoding of the outcomes in a slot into result fields for clients, in the dialect of each request."""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError, ErrorCode
from cluster_serving.client.wire.original.result import encode_result as encode_original
from cluster_serving.client.wire.receipt import Receipt
from cluster_serving.client.wire.reply import pack
from cluster_serving.client.wire.tensors import Array, tensor_header
from cluster_serving.node.processing.filter_text import json_text, legacy_text
from cluster_serving.node.ring.deadline import late
from cluster_serving.node.ring.slot import BATCHED, ORIGINAL, Outcome, Row, Slot, StoredOutput, array_at, cut

Fields = list[bytes]


class Published(NamedTuple):
    """Result of a record: the key to write to, the row, the fields to write, and the error of a failed record.

    `fields` of a hash are `field, value, ...`. `fields` of a reply are the uri and the packed result.
    """

    target: bytes
    row: Row
    fields: Fields
    failed: bool
    error: tuple[str, str] | None
    detail: str


_Answer = tuple[Fields, bytes, tuple[str, str] | None, str]
"""Result fields, the batch's part of the receipt for a hash, and error and detail of a failed record."""

DEADLY = frozenset(
    {
        ErrorCode.INFERENCE_FAILED,
        ErrorCode.RESULT_TOO_LARGE,
        ErrorCode.WORKER_DIED,
        ErrorCode.WORKER_HUNG,
        ErrorCode.DELIVERED_TOO_OFTEN,
    }
)
"""Errors of dead letters. No node could process the record, but a different model or setting may. Faults of the client are
not among these errors.
"""

_NO_OUTCOME = (ErrorCode.INFERENCE_FAILED, "the worker gave no outcome for this record")


class Results:
    """Encodes the results of one job's records.

    Args:
        job: name of the job.
        node: name of the node.
        model: hash of the model.
        ttl_ms: milliseconds for which Redis keeps a result that no client takes. 0: for ever.
        legacy_filter_text: answers in the original dialect have the exact text of the original's filters.
    """

    def __init__(
        self, job: str, node: str, *, model: str = "", ttl_ms: int = 0, legacy_filter_text: bool = False
    ) -> None:
        self._prefix = keys.result_prefix(job).encode()
        self._origin = {"node": node, "model": model, "ttl_ms": ttl_ms}
        self._original_text = legacy_text if legacy_filter_text else json_text

    def of(self, slot: Slot, batch: bytes, now_ms: float, *, clock_offset_ms: float = 0) -> Iterator[Published]:
        """Yield the result of each record of a slot, except records that are to run again.

        Args:
            slot: slot to read. The slot is not changed.
            batch: result of the method `batch` for the slot.
            now_ms: Unix time on Redis' clock.
            clock_offset_ms: milliseconds by which Redis' clock is ahead of this machine's.
        """
        overdue = 0 < slot.deadline_ms < now_ms
        table = slot.table()
        found: list[_Answer | None] = [None] * slot.rows
        flags = {row.place: row.flags for row in table if row.flags}
        again: set[int] = set()
        for outcome in slot.outcomes():
            if outcome.again:
                again.update(outcome.rows)
                continue
            names = [placed.name for placed in outcome.outputs]
            # A hash forgets the order of its fields, so the receipt in a hash names several outputs in order.
            batch_of_hash = batch[:-1] + (b',"outputs":%b}' % msgspec.json.encode(names) if len(names) > 1 else b"}")
            for place, fields in zip(outcome.rows, self._fields(slot, outcome, flags), strict=True):
                found[place] = fields, batch_of_hash, outcome.error, outcome.detail
        for row in table:
            if row.place in again:
                continue
            answer = found[row.place] if row.place >= 0 else None
            if answer is None:
                answer = _failed(row.error or _NO_OUTCOME, row, batch)
            elif overdue and 0 < row.deadline_ms < now_ms and answer[2] is None:
                answer = _failed(late(now_ms - row.deadline_ms, "the result could be published"), row, batch)
            fields, batch_of_hash, error, detail = answer
            failed = keys.ERROR in fields
            came = row.id, row.read_us / 1000 + clock_offset_ms, row.deliveries
            if row.reply:
                yield Published(row.reply, row, [row.uri, pack(*came, fields)], failed, error, detail)
                continue
            if not row.flags & ORIGINAL:
                fields += keys.RECEIPT, Receipt(*came, batch_of_hash).json()
            yield Published(self._prefix + row.uri, row, fields, failed, error, detail)

    def batch(self, slot: Slot, now_ms: float, *, clock_offset_ms: float = 0, worker: int = 0) -> bytes:
        """Return the part of a receipt (JSON) that is the same for all records of a slot.

        Args:
            slot: slot to read. The slot is not changed.
            now_ms: Unix time on Redis' clock.
            clock_offset_ms: milliseconds by which Redis' clock is ahead of this machine's.
            worker: number of the worker that ran the batch.
        """
        filled, started, ended = slot.times_us
        finished_ms = max(filled, started, ended) / 1000 + clock_offset_ms
        receipt: dict[str, object] = {
            **self._origin,
            "worker": worker,
            "batch": slot.rows,
            "filled_ms": round(filled / 1000 + clock_offset_ms, 3),
            "wait_ms": max(started - filled, 0) / 1000,
            "run_ms": max(ended - started, 0) / 1000,
            "publish_ms": round(max(now_ms - finished_ms, 0), 3),
        }
        return msgspec.json.encode(receipt)

    def _fields(self, slot: Slot, outcome: Outcome, flags: dict[int, int]) -> Iterator[Fields]:
        """Return the fields of each row of an outcome."""
        special = any(row in flags for row in outcome.rows) or any(placed.is_text for placed in outcome.outputs)
        if outcome.outputs and not special:
            # A row that cannot be encoded is found below, row by row.
            with suppress(Exception):
                return iter(list(_common(slot, outcome)))
        return (self._of_row(slot, outcome, index, flags.get(row, 0)) for index, row in enumerate(outcome.rows))

    def _of_row(self, slot: Slot, outcome: Outcome, index: int, flags: int) -> Fields:
        try:
            if outcome.error is not None:
                return _error(outcome.error, flags)
            if outcome.values:
                return [keys.VALUE, bytes(_cut_out(slot, outcome.values[index]))]
            if outcome.filtered:
                text = self._original_text if flags & ORIGINAL else json_text
                return [keys.VALUE, text(_cut_out(slot, outcome.filtered[index]))]
            if flags & ORIGINAL:
                return [
                    keys.VALUE,
                    encode_original([_array(slot, each, index, flags) for each in outcome.outputs]),
                ]
            fields: Fields = []
            for placed in outcome.outputs:
                if placed.is_text:
                    json = bytes(_cut_out(slot, placed.spans[index]))
                    fields += keys.STRING + placed.name.encode(), b"[%b]" % json if flags & BATCHED else json
                else:
                    array = _array(slot, placed, index, flags)
                    field, header, _ = _head(placed.name, placed.dtype, array.shape)
                    fields += field, header + array.tobytes()
            return fields
        except Exception as fault:  # a result that cannot be encoded must not stop the results of further rows
            return _error((ErrorCode.INFERENCE_FAILED, cut(str(fault))), flags)


def _failed(error: tuple[str, str], row: Row, batch: bytes) -> _Answer:
    return _error(error, row.flags), batch, error, ""


def _common(slot: Slot, outcome: Outcome) -> Iterator[Fields]:
    """Yield the fields of native rows without a batch dimension, from header and bytes. No array is made."""
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
    """Return field name, header of the tensor message, and bytes of data of one row."""
    kind = np.dtype(dtype)
    field = (keys.BOOL if kind.kind == "b" else keys.TENSOR) + name.encode()
    wire = np.dtype(np.uint8) if kind.kind == "b" else kind
    return field, tensor_header(wire, shape), kind.itemsize * int(np.prod(shape, dtype=np.int64))


def _array(slot: Slot, placed: StoredOutput, index: int, flags: int) -> Array:
    if placed.is_text:
        raise CodecError(f"output {placed.name!r} is text, which cannot be sent in the original dialect")
    size = np.dtype(placed.dtype).itemsize * int(np.prod(placed.row_shape, dtype=np.int64))
    array = array_at(slot.outputs, placed.dtype, placed.row_shape, placed.offset + index * size)
    return array[np.newaxis] if flags & BATCHED else array


def _cut_out(slot: Slot, span: tuple[int, int]) -> memoryview:
    start, length = span
    return slot.outputs[start : start + length]


def _error(error: tuple[str, str], flags: int) -> Fields:
    """Return the fields of an error. The original's clients read the three characters NaN and ignore the error field."""
    code, message = error
    document = msgspec.json.encode({"code": code, "message": message})
    return [keys.VALUE, b"NaN", keys.ERROR, document] if flags & ORIGINAL else [keys.ERROR, document]
