"""The reader process: takes entries off the stream and decodes them into slots.

    Redis --XREADGROUP--> backlog --decode--> filling, one batch a signature --> full --hand over--> worker

It waits for two things at once, the reply to XREADGROUP and its bell, and never for a timer. What it has read and not yet
handed over dies with it, and is not lost: its consumer name is stable, and the next reader begins with the entries that are
pending under that name and in no slot of the ring.
"""

import signal
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import redis
import structlog

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost, ErrorCode
from cluster_serving.client.link import Link
from cluster_serving.node.backoff import Backoff
from cluster_serving.node.batching import leaves
from cluster_serving.node.bell import Bell, Ear
from cluster_serving.node.decoding import Record, RecordDecoder
from cluster_serving.node.filling import Filling
from cluster_serving.node.layout import Layout, Signature, plan
from cluster_serving.node.metrics import READER, Count
from cluster_serving.node.ring import HANDED_OVER, Ring, State
from cluster_serving.node.specs import ReaderSpec

log = structlog.get_logger(__name__)

_BLOCK_MS = 500  # how long a stop may have to wait for the reply that is under way
_LONGEST_WAIT_S = 0.05
_PENDING_PAGE = 256
_MAX_LAYOUTS = 4096
_REFUSED: Signature = ()  # a batch of records that go to no model

Entry = tuple[bytes, list[bytes]]


class Reader:
    """Fills the slots of one lane from one stream."""

    def __init__(self, spec: ReaderSpec) -> None:
        lane = spec.lane
        self._spec = spec
        self._ring = Ring(lane.geometry, lane.ring_fd)
        self._bell = Bell(lane.reader_bell)
        self._ear = Ear(self._bell)
        self._worker_bells = [Bell(fd) for fd in lane.worker_bells]
        self._link = Link(lane.redis, _BLOCK_MS / 1000 + lane.redis.timeout_s)
        self._decoder = RecordDecoder(spec.inputs, keys.reply_key(lane.job, "").encode(), spec.decoding)
        self._count = self._ring.counters[READER]
        self._layouts: dict[Signature, Layout] = {}
        self._backlog: deque[Entry] = deque()
        self._filling: OrderedDict[Signature, Filling] = OrderedDict()
        self._full: deque[Filling] = deque()
        self._sequence = self._ring.newest()
        self._reading = False
        self._stopping = False
        self._backoff = Backoff()

    def stop(self, *_signal: object) -> None:
        """Read no more, hand over what has been read, and return from `run`. Safe in a signal handler."""
        self._stopping = True
        self._bell.ring()

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until stopped.

        Args:
            ready: called once, when the stream is there and can be read.
        """
        for slot in self._ring.every(State.FILLING):
            self._ring.move("reader", slot, State.FREE)
        for bell in self._worker_bells:
            bell.ring()  # the reader before this one may have died between handing over and ringing
        while not self._finished():
            try:
                if not self._link.connected and not self._stopping:
                    self._connect()
                    ready()
                    ready = _nothing
                self._step()
            except (ConnectionLost, redis.ResponseError) as error:
                # Whatever it was (gone, full, group or stream deleted): begin again from the connection.
                self._ear.watch(None)
                self._link.close()
                self._reading = False
                delay_s = self._backoff.next_s()
                log.warning("cannot read from Redis", reason=str(error), retry_in_s=round(delay_s, 1))
                self._ear.wait(delay_s)

    def _connect(self) -> None:
        """Take again what is pending under this consumer's name and nowhere in the ring."""
        try:
            self._take_again()
        except redis.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            # Made only when it is missing: a Redis without memory refuses it, and reading is what makes room there.
            self._link.call("XGROUP", "CREATE", self._spec.lane.job, keys.GROUP, "0", "MKSTREAM")
        if self._backoff.failing:
            log.info("reading from Redis again")
        self._backoff.reset()
        self._ear.watch(self._link.fileno())

    def _take_again(self) -> None:
        known = {row.id for slot in self._ring.every(*HANDED_OVER) for row in self._ring.slots[slot].table()}
        known |= {entry_id for batch in (*self._filling.values(), *self._full) for entry_id in batch.ids}
        known |= {entry_id for entry_id, _ in self._backlog}
        last: bytes | str = "0"
        while (reply := self._link.call(*self._command(_PENDING_PAGE, last))) and reply[0][1]:
            last = reply[0][1][-1][0]
            lost = [entry for entry in self._entries(reply) if entry[0] not in known]
            self._count[Count.REDELIVERED] += len(lost)
            self._backlog += lost
        if self._backlog:
            log.info("taking again what was read and not answered", records=len(self._backlog))

    def _command(self, count: int, after: bytes | str, *block: str | int) -> tuple[bytes | str | int, ...]:
        group = ("XREADGROUP", "GROUP", keys.GROUP, self._spec.consumer, "COUNT", count)
        return (*group, *block, "STREAMS", self._spec.lane.job, after)

    def _step(self) -> None:
        """One turn: decode, hand over, ask for entries if there is room, wait for them or the bell."""
        self._ring.reader_wants = True  # before looking: what becomes idle or free from now on rings
        self._decode_backlog()
        self._hand_over()
        if self._finished():
            return
        if not self._reading and not self._stopping and not self._backlog and self._has_room():
            self._link.send(self._command(self._spec.lane.geometry.batch, ">", "BLOCK", _BLOCK_MS))
            self._reading = True
        wants = self._ring.reader_wants = bool(self._backlog) or self._unsent() or not self._reading
        # With nothing in hand only Redis can bring news, and one system call is less than two.
        if not wants or self._ear.wait(self._patience_s()):
            self._receive()

    def _patience_s(self) -> float:
        """How long to wait with something in hand.

        Until the oldest batch has waited for maxBatchDelayMs, and never long: on a processor that delays stores, the worker may
        have missed that the reader wants to be rung.
        """
        if not self._filling or not self._spec.max_batch_delay_ms:
            return _LONGEST_WAIT_S
        oldest = min(filling.opened_ms for filling in self._filling.values())
        left_ms = oldest + self._spec.max_batch_delay_ms - _now_ms()
        return min(left_ms / 1000, _LONGEST_WAIT_S) if left_ms > 0 else _LONGEST_WAIT_S

    def _receive(self) -> None:
        self._reading = False
        entries = self._entries(self._link.read())
        self._count[Count.READ] += len(entries)
        self._backlog += entries

    def _entries(self, reply: Any) -> list[Entry]:
        """Those of a reply to XREADGROUP; an entry that was deleted while it was pending is acknowledged."""
        entries: list[Entry] = []
        for _stream, found in reply or ():
            for entry_id, fields in found:
                if fields is None:
                    self._link.call("XACK", self._spec.lane.job, keys.GROUP, entry_id)
                else:
                    entries.append((entry_id, fields))
        return entries

    def _has_room(self) -> bool:
        return self._ring.first(State.FREE) is not None

    def _decode_backlog(self) -> None:
        now_ms = _now_ms()
        while self._backlog:
            entry_id, fields = self._backlog[0]
            record = self._decoder.decode(entry_id, fields, now_ms)
            if not self._place(entry_id, record, now_ms):
                return
            self._backlog.popleft()

    def _place(self, entry_id: bytes, record: Record, now_ms: float) -> bool:
        """Put a record into the batch of its signature; False: there is no free slot."""
        if record.error is not None:
            return self._refuse(entry_id, record, now_ms)
        signature = record.signature
        filling = self._filling.get(signature)
        if filling is not None and not filling.fits(record.contents):
            self._close(signature)
            filling = None
        if filling is None:
            slot_bytes = self._spec.lane.geometry.slot_bytes
            if not self._layout(signature).fits(record.contents, slot_bytes):
                message = f"the record's inputs are larger than a slot of {slot_bytes} bytes (slotBytes in config.yaml)"
                return self._refuse(entry_id, record._replace(error=(ErrorCode.INVALID_INPUT, message)), now_ms)
            filling = self._open(signature, now_ms)
            if filling is None:
                return False
        filling.add(entry_id, record)
        if filling.full:
            self._close(signature)
        return True

    def _refuse(self, entry_id: bytes, record: Record, now_ms: float) -> bool:
        """Put a refused record beside the others of any batch: its answer leaves with theirs."""
        signature = next(iter(self._filling), _REFUSED)
        filling = self._filling.get(signature) or self._open(signature, now_ms)
        if filling is None:
            return False
        filling.refuse(entry_id, record)
        self._count[Count.REFUSED] += 1
        if filling.full:
            self._close(signature)
        return True

    def _open(self, signature: Signature, now_ms: float) -> Filling | None:
        slot = self._ring.first(State.FREE)
        if slot is None:
            self._close_oldest()
            return None
        self._ring.move("reader", slot, State.FILLING)
        ring = self._ring
        filling = Filling(slot, ring.slots[slot], self._layout(signature), ring.geometry, now_ms)
        self._filling[signature] = filling
        return filling

    def _layout(self, signature: Signature) -> Layout:
        layout = self._layouts.get(signature)
        if layout is None:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            geometry = self._spec.lane.geometry
            layout = self._layouts[signature] = plan(signature, geometry.batch, geometry.slot_bytes)
        return layout

    def _close(self, signature: Signature) -> None:
        filling = self._filling.pop(signature)
        filling.close()
        self._full.append(filling)

    def _close_oldest(self) -> None:
        """Many signatures can hold every slot half filled: let the oldest batch leave as it is."""
        if self._filling:
            self._close(next(iter(self._filling)))

    def _finished(self) -> bool:
        return self._stopping and not self._reading and not self._backlog and not self._unsent()

    def _unsent(self) -> bool:
        return bool(self._full or self._filling)

    def _hand_over(self) -> None:
        """Give batches to workers for as long as there is a batch that leaves and a worker that takes it."""
        while self._unsent() and (least := self._ring.least_loaded()) is not None:
            worker, load = least
            if self._full:
                if not leaves(True, load, 0, 0):
                    return
                filling = self._full.popleft()
            else:
                signature, filling = next(iter(self._filling.items()))
                if not leaves(False, load, _now_ms() - filling.opened_ms, self._spec.max_batch_delay_ms):
                    return
                filling.close()
                del self._filling[signature]
            self._sequence += 1
            self._ring.hand_over("reader", filling.index, worker, self._sequence)
            self._worker_bells[worker].ring()


def _nothing() -> None:
    pass


def _now_ms() -> float:
    return time.time() * 1000


def main(spec: ReaderSpec, ready: Callable[..., None]) -> None:
    """Run a reader until SIGTERM."""
    reader = Reader(spec)
    signal.signal(signal.SIGTERM, reader.stop)
    reader.run(ready)
