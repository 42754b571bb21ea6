"""Batches that the reader fills: one open batch per signature, and full batches that wait for a worker.

Refused records have batches of their own. A batch of refused records takes no room from records for the model, and waits for
no worker.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence

from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.reader.columns import Columns
from cluster_serving.node.reader.decoding import Record
from cluster_serving.node.reader.open_batch import OpenBatch
from cluster_serving.node.ring.deadline import life_ms
from cluster_serving.node.ring.forecast import rows_of
from cluster_serving.node.ring.input_layout import Layout, Signature, plan
from cluster_serving.node.ring.metrics import QUEUE_WAIT, READER, observe_ages
from cluster_serving.node.ring.ring import Ring, State

_MAX_LAYOUTS = 4096
_BATCHES_A_WORKER = 2  # the running batch and the next batch: a third batch would queue behind a slow worker
_REFUSED: Signature = ()  # signature of a batch of refused records, which go to no model


class Batcher:
    """Puts records into slots of a ring, in order of arrival. A batcher without records is false."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._geometry = ring.geometry
        self._layouts: dict[Signature, Layout] = {}
        self._open: OrderedDict[Signature, OpenBatch] = OrderedDict()
        self._full: deque[OpenBatch] = deque()
        self._refused: deque[OpenBatch] = deque()
        self._measures = ring.measures[READER]

    def __bool__(self) -> bool:
        return bool(self._open or self._full or self._refused)

    @property
    def ids(self) -> set[bytes]:
        """Ids of the entries in all batches."""
        batches = (*self._open.values(), *self._full, *self._refused)
        return {entry_id for batch in batches for entry_id in batch.ids}

    @property
    def full_rows(self) -> int:
        """Number of rows in full batches, which wait for a worker."""
        return sum(len(batch.ids) for batch in self._full)

    @property
    def oldest_opened_ms(self) -> float | None:
        """Time at which the oldest open batch was opened, on the clock of `place`. None: no batch is open."""
        return min((open_batch.opened_ms for open_batch in self._open.values()), default=None)

    def place(self, entry_id: bytes, record: Record, now_ms: float, read_us: int = 0, deliveries: int = 1) -> bool:
        """Put a record into the open batch of its signature, or a refused record into a batch of refused records.

        Args:
            entry_id: id of the record's entry.
            record: decoded record, possibly with an error.
            now_ms: present time on a monotonic clock.
            read_us: time at which the reader got the entry, in µs of the monotonic clock.
            deliveries: number of deliveries of the entry.

        Returns:
            False when the ring has no free slot for a further batch.
        """
        if record.error is not None:
            return self._refuse(entry_id, record, now_ms, read_us, deliveries)
        signature = record.signature
        open_batch = self._open.get(signature)
        if open_batch is not None and not open_batch.fits(record.contents):
            self._close(signature)
            open_batch = None
        if open_batch is None:
            slot_bytes = self._geometry.slot_bytes
            if not self._layout(signature).fits(record.contents, slot_bytes):
                message = f"the record's inputs are larger than a slot of {slot_bytes} bytes (slotBytes in config.yaml)"
                refused = record._replace(error=(ErrorCode.INVALID_INPUT, message))
                return self._refuse(entry_id, refused, now_ms, read_us, deliveries)
            open_batch = self._begin(signature, now_ms, self._most_rows(entry_id, record.deadline_ms))
            if open_batch is None:
                return False
        open_batch.add(entry_id, record, read_us, deliveries)
        if open_batch.full:
            self._close(signature)
        return True

    def place_alike(
        self, ids: Sequence[bytes], records: Columns, now_ms: float, read_us: int, deliveries: Sequence[int]
    ) -> int:
        """Put records into batches of their signature, from the first on, and return how many records had room.

        The caller gives the next record to `place`, which finds out why the record had no room.
        """
        signature, placed, added = records.signature, 0, self._layout(records.signature).capacity
        while added and placed < len(ids):
            open_batch = self._open.get(signature)
            if open_batch is None:
                most_rows = self._most_rows(ids[placed], records.deadlines_ms[placed])
                open_batch = self._begin(signature, now_ms, most_rows)
            if open_batch is None:
                break
            added = open_batch.add_alike(ids, records, placed, read_us, deliveries)
            placed += added
            if open_batch.full:
                self._close(signature)
        return placed

    def pop_due(self, least_load: int, now_ms: float, max_delay_ms: float) -> OpenBatch | None:
        """Close and return the next batch for a worker. The batcher must hold a full or an open batch.

        Args:
            least_load: number of batches that the worker has.
            now_ms: present time, on the clock of `place`.
            max_delay_ms: as for `is_due`.

        Returns:
            None when no batch is due.
        """
        if self._full:
            return self._full.popleft() if is_due(True, least_load, 0, 0) else None
        signature, open_batch = next(iter(self._open.items()))
        if not is_due(False, least_load, now_ms - open_batch.opened_ms, max_delay_ms):
            return None
        return self._finish(self._open.pop(signature))

    def pop_refused(self) -> OpenBatch | None:
        """Close and return the next batch of refused records. None: no refused record waits."""
        return self._finish(self._refused.popleft()) if self._refused else None

    def _refuse(self, entry_id: bytes, record: Record, now_ms: float, read_us: int, deliveries: int) -> bool:
        if not self._refused or self._refused[-1].full:
            open_batch = self._take_slot(_REFUSED, now_ms, self._geometry.batch)
            if open_batch is None:
                return False
            self._refused.append(open_batch)
        self._refused[-1].refuse(entry_id, record, read_us, deliveries)
        return True

    def _begin(self, signature: Signature, now_ms: float, most_rows: int) -> OpenBatch | None:
        """Open a batch of a signature. None: the ring has no free slot."""
        open_batch = self._take_slot(signature, now_ms, most_rows)
        if open_batch is not None:
            self._open[signature] = open_batch
        elif self._open:  # many signatures can hold every slot half filled, so the oldest batch is closed as it is
            self._close(next(iter(self._open)))
        return open_batch

    def _take_slot(self, signature: Signature, now_ms: float, most_rows: int) -> OpenBatch | None:
        slot = self._ring.first(State.FREE)
        if slot is None:
            return None
        self._ring.move("reader", slot, State.FILLING)
        layout = self._layout(signature)
        return OpenBatch(slot, self._ring.slots[slot], layout, self._geometry, now_ms, most_rows)

    def _most_rows(self, entry_id: bytes, deadline_ms: int) -> int:
        """Return the smallest of three limits for a new batch.

        The limits are the ring's `most_rows`, the rows that the record's deadline allows, and the rows whose outputs have room in
        a slot, judged by the outputs seen so far.
        """
        row_bytes, most = self._ring.row_output_bytes, self._ring.most_rows
        if deadline_ms:
            most = rows_of(self._ring.row_ms, life_ms(entry_id, deadline_ms), most)
        return max(1, min(most, self._geometry.slot_bytes // row_bytes)) if row_bytes else most

    def _layout(self, signature: Signature) -> Layout:
        layout = self._layouts.get(signature)
        if layout is None:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[signature] = plan(signature, self._geometry.batch, self._geometry.slot_bytes)
        return layout

    def _close(self, signature: Signature) -> None:
        """Make the open batch of a signature a full batch, even if the batch could take more rows."""
        self._full.append(self._finish(self._open.pop(signature)))

    def _finish(self, open_batch: OpenBatch) -> OpenBatch:
        open_batch.close()
        observe_ages(QUEUE_WAIT, self._measures, open_batch.ids, self._ring.redis_ms())
        return open_batch


def is_due(full: bool, least_load: int, age_ms: float, max_delay_ms: float) -> bool:
    """Return whether a batch is handed over now.

    Args:
        full: the batch can take no further row.
        least_load: number of batches that the least loaded worker has.
        age_ms: milliseconds since the first row of the batch.
        max_delay_ms: milliseconds for which a partial batch may wait for more rows although a worker is idle.
    """
    if full:
        return least_load < _BATCHES_A_WORKER
    return least_load == 0 and age_ms >= max_delay_ms
