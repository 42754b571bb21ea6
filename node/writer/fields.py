"""Step 2 of publishing a slot: the fields of each result, in the dialect of the request.

native dialect, into a hash      tensor:<output>, bool:<output>, string:<output>, value or error, and receipt
native dialect, into a reply     uri, and the same fields and the record's part of the receipt, packed
native dialect, into a call      uri, and the fields of a hash, packed
original dialect, into a hash    value, and error beside the value NaN. For clients before 0.9 the value is text throughout
"""

import math
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError, ErrorCode
from cluster_serving.client.wire.original.result import encode_result as encode_original
from cluster_serving.client.wire.receipt import BatchReceipt
from cluster_serving.client.wire.reply import pack
from cluster_serving.client.wire.result import pack_fields
from cluster_serving.client.wire.tensors import Array, tensor_header
from cluster_serving.node.processing.filter_text import classes_text, json_text, legacy_text, nested_text
from cluster_serving.node.processing.options import LegacyClients
from cluster_serving.node.ring.slot import (
    BATCHED,
    BY_ORDER,
    LEGACY,
    ORIGINAL,
    Outcome,
    Slot,
    StoredOutput,
    array_at,
    cut,
)
from cluster_serving.node.writer.outcome import RowOutcome

# With names and receipt within the 512 MiB of a value, beyond which Redis closes the connection (proto-max-bulk-len).
_MOST_BYTES = 511 << 20

_LIST_OF_ONE = b"\x91"  # of msgpack

Fields = list[bytes]
"""`field, value, field, value, ...`"""


class _Column(NamedTuple):
    """Output of all rows of an outcome.

    Attributes:
        field: name of the field.
        header: tensor message before the data, equal for all rows. Of text and nested values: the beginning of the list of a
            batch of one row.
        footer: the end of this list.
        offset: position of the first row's data in the outputs of the slot.
        size: bytes of a row's data.
        spans: offset and length of each row's text or nested value. Empty for numbers.
    """

    field: bytes
    header: bytes
    footer: bytes
    offset: int
    size: int
    spans: list[tuple[int, int]]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Fields of a record's result as `finish.lua` writes the fields, and whether the record failed."""

    fields: Fields
    failed: bool


class ResultFields:
    """Encodes the results of one slot.

    Args:
        slot: slot to read. The slot is not changed.
        receipt: part of the receipt that is equal for all records of the slot.
        clock_offset_ms: milliseconds by which Redis' clock is ahead of the monotonic clock.
        legacy_filter_text: answers in the original dialect have the exact text of the original's filters.
        legacy: clients before 0.9, which decide the form of their results.
    """

    def __init__(
        self,
        slot: Slot,
        receipt: BatchReceipt,
        *,
        clock_offset_ms: float = 0,
        legacy_filter_text: bool = False,
        legacy: LegacyClients = "off",
    ) -> None:
        self._slot = slot
        self._receipt = receipt
        self._clock_offset_ms = clock_offset_ms
        self._original_text = legacy_text if legacy_filter_text else json_text
        self._text_before_0_9 = classes_text if legacy == "0.7" else self._original_text
        self._may_be_large = slot.output_bytes > _MOST_BYTES // 2  # base64 of the original dialect takes a third more
        self._outcome: Outcome | None = None  # the outcome of the columns, and whether they have a batch dimension
        self._batched = False
        self._columns: list[_Column] = []

    def answer(self, ended: RowOutcome) -> Answer:
        """Return the result of a record.

        Outputs that cannot be encoded in the dialect of the record, or are too large for Redis, are answered with an error. Such a
        record is no dead letter, because neither the record nor the model is at fault.
        """
        row, outcome = ended.row, ended.outcome
        failed = outcome.error is not None
        try:
            fields = self._result(row.flags, outcome, ended.index)
            if self._may_be_large and (size := sum(map(len, fields))) > _MOST_BYTES:
                reason = f"the result has {size} bytes, and Redis takes at most {_MOST_BYTES}"
                fields, failed = _error((ErrorCode.RESULT_TOO_LARGE, reason), row.flags), True
        except Exception as fault:  # every exception of an encoder: the results of further rows must not stop
            fields, failed = _error((ErrorCode.INFERENCE_FAILED, cut(str(fault))), row.flags), True
        read_ms = row.read_us / 1000 + self._clock_offset_ms
        by_order = row.flags & BY_ORDER
        is_later = keys.is_later(row.reply)
        if row.reply and not is_later:
            if by_order:
                fields += keys.BOUND, keys.ORDER
            fields = [row.uri, pack(row.id, read_ms, row.deliveries, fields)]
        elif not row.flags & ORIGINAL:
            names = [output.name for output in outcome.outputs] if len(outcome.outputs) > 1 else ()
            bound = keys.ORDER.decode() if by_order else ""
            fields += keys.RECEIPT, self._receipt.of_record(row.id, read_ms, row.deliveries, names, bound).encode()
        if is_later:
            fields = [row.uri, pack_fields(fields)]
        return Answer(fields, failed)

    def _result(self, flags: int, outcome: Outcome, index: int) -> Fields:
        if outcome.error is not None:
            return _error(outcome.error, flags)
        outputs = self._slot.outputs
        if outcome.values:
            start, length = outcome.values[index]
            return [keys.VALUE, bytes(outputs[start : start + length])]
        if outcome.filtered:
            start, length = outcome.filtered[index]
            text = json_text
            if flags & ORIGINAL:
                text = self._text_before_0_9 if flags & LEGACY else self._original_text
            return [keys.VALUE, text(outputs[start : start + length])]
        if flags & ORIGINAL:
            encode = nested_text if flags & LEGACY else encode_original
            return [keys.VALUE, encode([_array(self._slot, each, index, flags) for each in outcome.outputs])]
        batched = bool(flags & BATCHED)
        if outcome is not self._outcome or batched != self._batched:
            self._columns = [_column(output, batched=batched) for output in outcome.outputs]
            self._outcome, self._batched = outcome, batched
        fields: Fields = []
        for field, header, footer, offset, size, spans in self._columns:
            if spans:
                start, length = spans[index]
                fields += field, header + outputs[start : start + length] + footer
            else:
                start = offset + index * size
                fields += field, header + outputs[start : start + size]
        return fields


def _column(output: StoredOutput, *, batched: bool) -> _Column:
    if output.spans:
        kind, header, footer = (keys.STRING, b"[", b"]") if output.is_text else (keys.NESTED, _LIST_OF_ONE, b"")
        if not batched or output.batch_axis < 0:
            header = footer = b""
        return _Column(kind + output.name.encode(), header, footer, 0, 0, output.spans)
    field, header, size = _head(output.name, output.dtype, output.batched_shape if batched else output.row_shape)
    return _Column(field, header, b"", output.offset, size, [])


@lru_cache(maxsize=1024)
def _head(name: str, dtype: str, shape: tuple[int, ...]) -> tuple[bytes, bytes, int]:
    """Return field name, header of the tensor message, and bytes of data of one row."""
    kind = np.dtype(dtype)
    field = (keys.BOOL if kind.kind == "b" else keys.TENSOR) + name.encode()
    wire = np.dtype(np.uint8) if kind.kind == "b" else kind
    return field, tensor_header(wire, shape), kind.itemsize * math.prod(shape)


def _array(slot: Slot, output: StoredOutput, index: int, flags: int) -> Array:
    if output.spans:
        what = "text" if output.is_text else "a sequence or map"
        raise CodecError(f"output {output.name!r} is {what}, which cannot be sent in the original dialect")
    size = np.dtype(output.dtype).itemsize * math.prod(output.row_shape)
    shape = output.batched_shape if flags & BATCHED else output.row_shape
    return array_at(slot.outputs, output.dtype, shape, output.offset + index * size)


def _error(error: tuple[str, str], flags: int) -> Fields:
    """Return the fields of an error. The original's clients read the three characters NaN and ignore the error field."""
    code, message = error
    document = msgspec.json.encode({"code": code, "message": message})
    return [keys.VALUE, b"NaN", keys.ERROR, document] if flags & ORIGINAL else [keys.ERROR, document]


def batch_receipt(
    slot: Slot, now_ms: float, *, node: str, model: str, ttl_ms: int, worker: int, clock_offset_ms: float
) -> BatchReceipt:
    """Return the part of a receipt that is equal for all records of a slot.

    Args:
        slot: slot to read. The slot is not changed.
        now_ms: Unix time in ms on Redis' clock, at which the writer begins to publish the slot.
        node: name of the node.
        model: fingerprint of the model.
        ttl_ms: milliseconds for which Redis keeps a result hash, 0 for ever.
        worker: number of the worker that ran the batch.
        clock_offset_ms: milliseconds by which Redis' clock is ahead of the monotonic clock.
    """
    filled_us, started_us, ended_us = slot.times_us
    finished_ms = max(filled_us, started_us, ended_us) / 1000 + clock_offset_ms
    return BatchReceipt(
        node=node,
        model=model,
        ttl_ms=ttl_ms,
        worker=worker,
        batch=slot.rows,
        filled_ms=round(filled_us / 1000 + clock_offset_ms, 3),
        wait_ms=max(started_us - filled_us, 0) / 1000,
        run_ms=max(ended_us - started_us, 0) / 1000,
        publish_ms=round(max(now_ms - finished_ms, 0), 3),
    )
