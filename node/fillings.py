"""The batches that the reader fills: one open batch a signature, and the full ones that wait for a worker."""

from collections import OrderedDict, deque

from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.batching import leaves
from cluster_serving.node.decoding import Record
from cluster_serving.node.filling import Filling
from cluster_serving.node.layout import Layout, Signature, plan
from cluster_serving.node.metrics import READER, observe_waits
from cluster_serving.node.ring import Ring, State

_MAX_LAYOUTS = 4096
_REFUSED: Signature = ()  # a batch of records that go to no model


class Fillings:
    """Puts records into slots of a ring, in the order in which they come; false when it holds none."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._geometry = ring.geometry
        self._layouts: dict[Signature, Layout] = {}
        self._open: OrderedDict[Signature, Filling] = OrderedDict()
        self._full: deque[Filling] = deque()
        self._measures = ring.measures[READER]

    def __bool__(self) -> bool:
        return bool(self._open or self._full)

    @property
    def ids(self) -> set[bytes]:
        """The entries in these batches."""
        return {entry_id for batch in (*self._open.values(), *self._full) for entry_id in batch.ids}

    @property
    def oldest_ms(self) -> float | None:
        """When the first row came into the oldest open batch, on the clock that `place` was told; None: none is open."""
        return min((filling.opened_ms for filling in self._open.values()), default=None)

    def place(self, entry_id: bytes, record: Record, now_ms: float, read_us: int = 0, deliveries: int = 1) -> bool:
        """Put a record into the batch of its signature, at `now_ms` of a monotonic clock; False: there is no free slot."""
        if record.error is not None:
            return self._refuse(entry_id, record, now_ms, read_us, deliveries)
        signature = record.signature
        filling = self._open.get(signature)
        if filling is not None and not filling.fits(record.contents):
            self._close(signature)
            filling = None
        if filling is None:
            slot_bytes = self._geometry.slot_bytes
            if not self._layout(signature).fits(record.contents, slot_bytes):
                message = f"the record's inputs are larger than a slot of {slot_bytes} bytes (slotBytes in config.yaml)"
                refused = record._replace(error=(ErrorCode.INVALID_INPUT, message))
                return self._refuse(entry_id, refused, now_ms, read_us, deliveries)
            filling = self._begin(signature, now_ms)
            if filling is None:
                return False
        filling.add(entry_id, record, read_us, deliveries)
        if filling.full:
            self._close(signature)
        return True

    def leaving(self, least_load: int, now_ms: float, max_delay_ms: float) -> Filling | None:
        """The next batch that leaves for a worker with so many others, closed; None: none does."""
        if self._full:
            return self._full.popleft() if leaves(True, least_load, 0, 0) else None
        signature, filling = next(iter(self._open.items()))
        if not leaves(False, least_load, now_ms - filling.opened_ms, max_delay_ms):
            return None
        return self._closed(signature)

    def _refuse(self, entry_id: bytes, record: Record, now_ms: float, read_us: int, deliveries: int) -> bool:
        """Put a refused record beside the others of any batch: its answer leaves with theirs."""
        signature = next(iter(self._open), _REFUSED)
        filling = self._open.get(signature) or self._begin(signature, now_ms)
        if filling is None:
            return False
        filling.refuse(entry_id, record, read_us, deliveries)
        if filling.full:
            self._close(signature)
        return True

    def _begin(self, signature: Signature, now_ms: float) -> Filling | None:
        slot = self._ring.first(State.FREE)
        if slot is None:
            self._close_oldest()
            return None
        self._ring.move("reader", slot, State.FILLING)
        layout = self._layout(signature)
        filling = Filling(slot, self._ring.slots[slot], layout, self._geometry, now_ms, self._most_rows())
        self._open[signature] = filling
        return filling

    def _most_rows(self) -> int:
        """What the ring says, and for how many rows' outputs a slot has room, as far as that is known; one comes in any case."""
        row_bytes, most = self._ring.row_output_bytes, self._ring.most_rows
        return max(1, min(most, self._geometry.slot_bytes // row_bytes)) if row_bytes else most

    def _layout(self, signature: Signature) -> Layout:
        layout = self._layouts.get(signature)
        if layout is None:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[signature] = plan(signature, self._geometry.batch, self._geometry.slot_bytes)
        return layout

    def _close(self, signature: Signature) -> None:
        self._full.append(self._closed(signature))

    def _closed(self, signature: Signature) -> Filling:
        filling = self._open.pop(signature)
        filling.close()
        observe_waits(self._measures, filling.ids, self._ring.redis_ms())
        return filling

    def _close_oldest(self) -> None:
        """Many signatures can hold every slot half filled: let the oldest batch leave as it is."""
        if self._open:
            self._close(next(iter(self._open)))
