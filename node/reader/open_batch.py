"""Batch that the reader is filling."""

from collections.abc import Sequence
from itertools import chain, repeat

import numpy as np

from cluster_serving.node.processing.model_input import Content
from cluster_serving.node.reader.columns import Columns
from cluster_serving.node.reader.decoding import Record
from cluster_serving.node.ring.input_layout import InputArea, Layout, encode_layout
from cluster_serving.node.ring.slot import LARGEST_ROW_ENTRY, Geometry, Row, Slot, array_at

_ENTRY_OVERHEAD = 112  # most bytes of a row in the row table (msgpack), besides texts, spans and error message
_SPAN_BYTES = 19  # most bytes of a span in the row table
_NO_SPANS: list[tuple[int, int]] = []


class OpenBatch:
    """Rows of one signature, written straight into a slot. The row table is written when the batch is closed.

    Args:
        index: number of the slot in the ring.
        slot: slot in the state FILLING.
        layout: layout of the signature.
        geometry: sizes of the ring.
        now_ms: present time on a monotonic clock.
        most_rows: largest number of rows.

    Attributes:
        index: as given.
        opened_ms: `now_ms` as given.
    """

    def __init__(
        self, index: int, slot: Slot, layout: Layout, geometry: Geometry, now_ms: float, most_rows: int
    ) -> None:
        self.index = index
        self.opened_ms = now_ms
        self._slot = slot
        self._inputs = slot.inputs
        self._layout = layout
        self._batch = geometry.batch
        self._capacity = min(layout.capacity, most_rows)
        self._placed = 0
        self._has_heap = layout.has_heap
        self._heap = layout.heap
        self._table_left = geometry.table_bytes - LARGEST_ROW_ENTRY
        self._rows: list[Row] = []

    @property
    def ids(self) -> list[bytes]:
        """Ids of the entries in the batch."""
        return [row.id for row in self._rows]

    @property
    def full(self) -> bool:
        """True when the batch can take no further record."""
        return self._room <= 0 or self._table_left < 0

    @property
    def _room(self) -> int:
        """Number of further rows, as far as inputs and the number of rows are concerned."""
        return min(self._capacity - self._placed, self._batch - len(self._rows))

    def fits(self, contents: Sequence[Content]) -> bool:
        """Return whether the variable-length contents of a record fit."""
        return not self._has_heap or self._heap + self._layout.heap_bytes(contents) <= len(self._inputs)

    def refuse(self, entry_id: bytes, record: Record, read_us: int = 0, deliveries: int = 1) -> None:
        """Add a record that is answered with an error."""
        uri, reply, flags, _, _, error, _, traceparent = record
        self._append(Row(entry_id, uri, reply, flags, -1, [], error, 0, traceparent, read_us, deliveries))
        self._table_left -= len(record.error[1].encode()) if record.error else 0

    def add(self, entry_id: bytes, record: Record, read_us: int = 0, deliveries: int = 1) -> None:
        """Copy a record's contents into the next row."""
        inputs, at = self._inputs, self._placed
        spans: list[tuple[int, int]] = []
        for content, place in zip(record.contents, self._layout.inputs, strict=True):
            if place.in_heap:
                assert not isinstance(content, np.ndarray)  # noqa: S101 - only fixed rows are converted in the slot
                end = self._heap + len(content)
                inputs[self._heap : end] = content
                spans.append((self._heap, len(content)))
                self._heap = end
            else:
                self._put([content], place, at)
        self._placed = at + 1
        uri, reply, flags, _, _, _, deadline_ms, traceparent = record
        self._append(Row(entry_id, uri, reply, flags, at, spans, None, deadline_ms, traceparent, read_us, deliveries))

    def add_alike(
        self, ids: Sequence[bytes], records: Columns, begin: int, read_us: int, deliveries: Sequence[int]
    ) -> int:
        """Copy the contents of records from `begin` on into the next rows, and return how many records had room.

        Return 0 when the row table could be too small for all the records. The caller then uses `add`, record by record, to find
        out how many records fit.
        """
        part = slice(begin, begin + self._room)
        ids, uris, replies, traceparents = (
            ids[part],
            records.uris[part],
            records.replies[part],
            records.traceparents[part],
        )
        size = sum(map(len, chain(ids, uris, replies, traceparents))) + _ENTRY_OVERHEAD * len(ids)
        if size > self._table_left:
            return 0
        places = range(self._placed, self._placed + len(ids))
        for contents, place in zip(records.contents, self._layout.inputs, strict=True):
            self._put(contents[part], place, self._placed)
        common = ids, uris, replies, repeat(records.flags), places, repeat(_NO_SPANS), repeat(None)
        self._rows += map(Row, *common, records.deadlines_ms[part], traceparents, repeat(read_us), deliveries[part])
        self._placed += len(ids)
        self._table_left -= size
        return len(ids)

    def close(self) -> None:
        """Write the row table. The slot can then be handed to a worker."""
        self._slot.fill(encode_layout(self._layout), self._rows, self._placed)

    def _put(self, contents: Sequence[Content], place: InputArea, row: int) -> None:
        """Copy contents into the rows of an input from `row` on. Arrays are converted to the dtype of the input."""
        inputs, row_bytes = self._inputs, place.row_bytes
        start = place.offset + row * row_bytes
        for content in contents:
            if isinstance(content, np.ndarray):
                array_at(inputs, place.dtype, content.shape, start)[:] = content
            else:
                inputs[start : start + row_bytes] = content
            start += row_bytes

    def _append(self, row: Row) -> None:
        self._rows.append(row)
        texts = len(row.id) + len(row.uri) + len(row.reply) + len(row.traceparent)
        self._table_left -= texts + _SPAN_BYTES * len(row.spans) + _ENTRY_OVERHEAD
