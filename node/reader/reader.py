"""The reader process: reads entries from the stream and decodes the entries into slots.

    Redis --XREADGROUP--> backlog --decode--> filling, one batch per signature --> full --hand over--> worker
                                       └----> refused: broken, or too late --> writer

In each turn the reader decodes the backlog, hands batches over, and takes one step that `intake.py` decides: a read, a claim, a
renewal, a scan, or a wait for the reply to XREADGROUP and for the bell at the same time.

When a reader dies, the entries read and not yet handed over are not lost. The consumer name is stable, and the next reader claims
the entries pending under the name and in no slot of the ring. A few times per lease the reader renews the leases of the lane's
entries (`leases.py`), and then scans for entries whose holders no longer renew the lease.
"""

import signal
import time
from collections import deque
from collections.abc import Callable, Sequence

import redis
import structlog

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost, ErrorCode
from cluster_serving.client.servers.process.backoff import Backoff
from cluster_serving.client.threads.link import Link
from cluster_serving.node.models.allocator import keep_freed_memory
from cluster_serving.node.reader.batcher import Batcher
from cluster_serving.node.reader.decoding import Record, RecordDecoder
from cluster_serving.node.reader.intake import Facts, Step, is_suspect, next_step
from cluster_serving.node.reader.leases import RENEWALS_A_LEASE, Leases, Pending
from cluster_serving.node.reader.legacy import PERIOD_S, LegacyStreams
from cluster_serving.node.reader.read_size import ReadSize
from cluster_serving.node.reader.redis_clock import MEASURE_S, offset_ms, restart_ids
from cluster_serving.node.reader.spec import ReaderSpec
from cluster_serving.node.ring.bell import Bell, Ear
from cluster_serving.node.ring.forecast import NO_FORECAST, Forecast
from cluster_serving.node.ring.metrics import READER, Count
from cluster_serving.node.ring.ring import HANDED_OVER, Ring, State
from cluster_serving.node.ring.slot import BY_ORDER, now_us
from cluster_serving.node.ring.traceparent import traced

log = structlog.get_logger(__name__)

_BLOCK_MS = 500  # longest wait of a stop for the reply under way
_LONGEST_WAIT_S = 0.05  # short: where a processor delays stores, a worker may miss that the reader wants to be rung
_SCAN_COUNT = 256  # most stale entries of one scan

Entry = tuple[bytes, list[bytes], int]
"""Id, fields and number of deliveries of an entry."""


class Reader:
    """Fills the slots of one lane with the entries of one stream."""

    def __init__(self, spec: ReaderSpec) -> None:
        lane = spec.lane
        self._spec = spec
        self._ring = Ring(lane.geometry, lane.ring_fd)
        self._bell = Bell(lane.reader_bell)
        self._ear = Ear(self._bell)
        self._worker_bells = [Bell(fd) for fd in lane.worker_bells]
        self._writer_bell = Bell(lane.writer_bell)
        self._link = Link(lane.redis, _BLOCK_MS / 1000 + lane.redis.timeout_s)
        prefix = keys.reply_prefix(lane.job).encode()
        self._decoder = RecordDecoder(spec.inputs, prefix, spec.decoding, lane.geometry.slot_bytes)
        self._counters = self._ring.counters[READER]
        self._read_size = ReadSize(lane.geometry.slot_bytes)
        self._read_command = ("XREADGROUP", "GROUP", keys.GROUP, spec.consumer, "COUNT")
        self._leases = Leases(self._link, lane.job, spec.consumer, spec.lease_s)
        self._legacy = LegacyStreams(self._link, lane.job) if spec.decoding.legacy != "off" else None
        self._block_ms = round(PERIOD_S * 1000) if self._legacy else _BLOCK_MS
        self._renewal_due_s = self._clock_due_s = 0.0
        self._scan_due = False
        self._orphans: deque[bytes] = deque()  # entry ids
        self._suspects: deque[bytes] = deque()
        self._suspect_last = False  # the entry taken last is a suspect
        self._backlog: list[Entry] = []
        self._read_us = 0  # time of the last read: the backlog is empty before more entries are read
        self._batcher = Batcher(self._ring)
        self._sequence = self._ring.newest()  # of the batch handed over last
        self._since_us = now_us()  # end of the last wait
        self._reading = False
        self._draining = False
        self._backoff = Backoff()

    def stop(self, *_signal: object) -> None:
        """Stop reading, and make `run` return when every entry read is finished. Safe in a signal handler."""
        self._draining = True
        self._bell.ring()

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until stopped.

        Args:
            ready: called once, when the stream exists and can be read.
        """
        for slot in self._ring.every(State.FILLING):
            self._ring.slots[slot].fill(b"", [], 0)  # the batch before is overwritten in part
            self._ring.move("reader", slot, State.FREE)
        for bell in (*self._worker_bells, self._writer_bell):
            bell.ring()  # the previous reader may have died between handing over and ringing
        step = Step.WAIT
        while step is not Step.END:
            self._ring.beat(READER)
            try:
                if not self._link.connected and not self._draining:
                    self._connect()
                    ready()
                    ready = _nothing
                step = self._turn()
            except (ConnectionLost, redis.ResponseError) as error:
                # Whether Redis is gone or full, or the group or stream was deleted: begin again from the connection.
                self._ring.consuming = self._reading = False
                self._ear.watch(None)
                self._link.close()
                delay_s = self._backoff.next_s()
                log.warning("cannot read from Redis", reason=str(error), retry_in_s=round(delay_s, 1))
                self._ear.wait(delay_s)
        self._ring.consuming = False

    def _connect(self) -> None:
        """Connect, and note the entries that are pending under this consumer's name and nowhere in the lane."""
        with self._ring.connecting(READER):
            self._link.connect()
        self._measure_clock()
        held = self._held()
        self._orphans.clear()
        self._suspects.clear()
        try:
            self._note([entry for entry in self._leases.own() if entry.id not in held])
        except redis.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            # Create the group only when it is missing: a Redis without memory refuses the command, and reading makes room there.
            self._link.call("XGROUP", "CREATE", self._spec.lane.job, keys.GROUP, "0", "MKSTREAM")
        if self._backoff.failing:
            log.info("reading from Redis again")
            self._counters[Count.RECONNECTS] += 1
        self._backoff.reset()
        self._ear.watch(self._link.fileno())
        self._since_us = now_us()
        self._ring.consuming = True

    def _turn(self) -> Step:
        """Decode the backlog, hand batches over, then do the next step and return the step."""
        self._ring.reader_wants = True  # before looking, so that a worker or slot freed from now on rings the bell
        self._decode_backlog()
        self._hand_over()
        now_s = time.monotonic()
        facts = Facts(
            reading=self._reading,
            draining=self._draining,
            renewal_due=now_s >= self._renewal_due_s,
            clock_due=now_s >= self._clock_due_s,
            backlog=bool(self._backlog),
            suspect_last=self._suspect_last,
            orphans=bool(self._orphans),
            suspects=bool(self._suspects),
            legacy_due=self._legacy is not None and self._legacy.due,
            scan_due=self._scan_due,
        )
        step = next_step(facts, self._has_room, self._is_empty)
        match step:
            case Step.READ:
                stream, count = self._spec.lane.job, self._read_size.entries(self._ring.most_rows)
                self._link.send((*self._read_command, count, "BLOCK", self._block_ms, "STREAMS", stream, ">"))
                self._reading, self._suspect_last = True, False
                self._wait()
            case Step.WAIT:
                self._wait()
            case Step.CLAIM:
                self._claim_orphans()
            case Step.CLAIM_SUSPECT:
                self._claim_suspect()
            case Step.RENEW:
                self._renewal_due_s = now_s + self._spec.lease_s / RENEWALS_A_LEASE
                self._leases.renew(list(self._held()))
                self._scan_due = True
            case Step.MEASURE:
                self._measure_clock()
                if restart_ids(self._link, self._spec.lane.job):
                    log.warning(
                        "a client had given a record an id far ahead of Redis' clock; the ids of the stream begin anew"
                    )
            case Step.MOVE:
                if self._legacy is not None:
                    self._legacy.move()
            case Step.SCAN:
                self._scan()
            case Step.END:
                pass
        return step

    def _wait(self) -> None:
        """Wait for a reply, for the bell, or until the oldest batch is due. The entries of a reply become the backlog."""
        wants = self._ring.reader_wants = bool(self._backlog or self._batcher) or not self._reading
        self._counters[Count.BUSY_US] += now_us() - self._since_us
        # Without a backlog and batches only Redis can bring work. Reading at once takes one system call instead of two.
        if wants:
            wait_s, delay_ms = _LONGEST_WAIT_S, self._spec.max_batch_delay_ms
            opened_ms = self._batcher.oldest_opened_ms if delay_ms else None
            if opened_ms is not None and (left_ms := opened_ms + delay_ms - _now_ms()) > 0:
                wait_s = min(left_ms / 1000, wait_s)
            if not self._heard(wait_s):
                return
        self._reading = False
        before_bytes = self._link.received_bytes
        found = self._link.read() or ()
        entries = [(entry_id, fields, 1) for _stream, added in found for entry_id, fields in added]
        received_bytes = self._link.received_bytes - before_bytes
        self._read_size.note(len(entries), received_bytes)
        self._read_us = now_us()
        if not wants:
            self._since_us = self._read_us
        self._counters[Count.READ] += len(entries)
        self._counters[Count.READ_BYTES] += received_bytes
        if entries and self._is_empty():
            self._counters[Count.EMPTIED] += 1
            self._counters[Count.EMPTY_US] += self._read_us - (self._ring.published_us or self._read_us)
        self._backlog += entries

    def _heard(self, wait_s: float) -> bool:
        """Wait, and return whether a reply is there. The time counts as blocked while the ring takes no more records."""
        begun_us, blocked = now_us(), bool(self._backlog or self._batcher.full_rows)
        has_reply = self._ear.wait(wait_s)
        self._since_us = now_us()
        if blocked:
            for count in (Count.BUSY_US, Count.BLOCKED_US):
                self._counters[count] += self._since_us - begun_us
        return has_reply

    def _measure_clock(self) -> None:
        self._ring.clock_offset_ms = offset_ms(self._link)
        self._clock_due_s = time.monotonic() + MEASURE_S

    def _claim_orphans(self) -> None:
        """Claim at most a batch: the entries come in one reply, and all become suspects if the reply kills the reader."""
        count = min(len(self._orphans), self._read_size.entries(self._spec.lane.geometry.batch))
        before_bytes = self._link.received_bytes
        claimed = self._leases.claim([self._orphans.popleft() for _ in range(count)])
        self._read_size.note(len(claimed), self._link.received_bytes - before_bytes)
        self._suspect_last = False
        self._counters[Count.REDELIVERED] += len(claimed)
        self._read_us = now_us()
        self._backlog += [(entry.id, entry.fields, entry.deliveries + 1) for entry in claimed]

    def _claim_suspect(self) -> None:
        """Claim one suspect for the empty lane. A suspect that was delivered too often is refused."""
        # The claim is empty when another consumer holds the entry by now.
        for entry_id, fields, deliveries in self._leases.claim([self._suspects.popleft()]):
            self._suspect_last = True
            self._counters[Count.REDELIVERED] += 1
            self._read_us = now_us()
            if deliveries < self._spec.max_deliveries:
                self._backlog.append((entry_id, fields, deliveries + 1))
                continue
            message = f"delivered {deliveries} times, and every time the node that read the record died (maxDeliveries)"
            record = self._decoder.refuse(entry_id, fields, (ErrorCode.DELIVERED_TOO_OFTEN, message))
            told = {"entry": entry_id.decode(), "deliveries": deliveries, **traced(record.traceparent)}
            log.warning("a record is given up: every node that read the record died", **told)
            self._place(entry_id, record, deliveries + 1)

    def _scan(self) -> None:
        """Note stale entries, and remove consumers that hold no entry and were long silent."""
        held = self._held()
        stale = self._leases.stale(_SCAN_COUNT)
        # An entry of the lane is stale when another consumer took the entry over and died. The lane still works on the entry.
        pending = [entry for entry in stale if entry.id not in held]
        self._scan_due = bool(pending) and len(stale) == _SCAN_COUNT
        self._note(pending)
        for consumer in self._leases.prune():
            log.info("removed a consumer that held no records and was long silent", consumer=consumer)

    def _note(self, pending: Sequence[Pending]) -> None:
        """Queue pending entries to be claimed. Suspects with the most deliveries come last: the rest are probably innocent."""
        most = self._spec.max_deliveries
        self._orphans += (entry.id for entry in pending if not is_suspect(entry.deliveries, most))
        suspects = [entry for entry in pending if is_suspect(entry.deliveries, most)]
        self._suspects += (entry.id for entry in sorted(suspects, key=lambda entry: entry.deliveries))
        if pending:
            log.info("taking records that were read and not answered", records=len(pending), one_by_one=len(suspects))

    def _held(self) -> set[bytes]:
        """Return the ids of all entries that the lane works on."""
        held = {row.id for slot in self._ring.every(*HANDED_OVER) for row in self._ring.slots[slot].table()}
        return held | self._batcher.ids | {entry_id for entry_id, _, _ in self._backlog}

    def _is_empty(self) -> bool:
        """Return whether the lane works on no entry."""
        return not (self._backlog or self._batcher or self._ring.every(*HANDED_OVER))

    def _has_room(self) -> bool:
        """Return whether the ring has a free slot."""
        return self._ring.first(State.FREE) is not None

    def _decode_backlog(self) -> None:
        """Decode entries into open batches, until the backlog is empty or the ring has no free slot."""
        now_ms, expected = self._ring.redis_ms(), self._expected()
        if self._backlog and self._has_room():  # mostly the whole backlog, at once
            ids, entries, counts = zip(*self._backlog, strict=True)
            alike = self._decoder.decode_alike(ids, entries, now_ms + expected.longest_ms(len(ids)))
            if alike is not None:
                placed = self._batcher.place_alike(ids, alike, _now_ms(), self._read_us, counts)
                if alike.flags:
                    self._counters[Count.BOUND_BY_ORDER] += placed
                del self._backlog[:placed]
        while self._backlog:
            entry_id, fields, deliveries = self._backlog[0]
            record = self._decoder.decode(entry_id, fields, now_ms, expected)
            if not self._place(entry_id, record, deliveries):
                return
            if record.error is None:
                expected = self._expected()
            del self._backlog[0]

    def _expected(self) -> Forecast:
        """Return the forecast for the next record to be decoded."""
        row_ms = self._ring.row_ms
        if not (row_ms and self._backlog):
            return NO_FORECAST
        return Forecast(row_ms, row_ms * self._ring.rows_a_worker(self._batcher.full_rows), self._ring.most_rows)

    def _place(self, entry_id: bytes, record: Record, deliveries: int) -> bool:
        placed = self._batcher.place(entry_id, record, _now_ms(), self._read_us, deliveries)
        self._counters[Count.REFUSED] += placed and record.error is not None
        if record.flags & BY_ORDER:
            self._counters[Count.BOUND_BY_ORDER] += placed
        return placed

    def _hand_over(self) -> None:
        """Leave refused records to the writer, and give batches to workers while a batch is due and a worker takes it."""
        while (refused := self._batcher.pop_refused()) is not None:
            self._sequence += 1
            self._ring.answer(refused.index, self._sequence)
            self._writer_bell.ring()
        while self._batcher and (least := self._ring.least_loaded()) is not None:
            worker, load = least
            batch = self._batcher.pop_due(load, _now_ms(), self._spec.max_batch_delay_ms)
            if batch is None:
                return
            self._sequence += 1
            self._ring.hand_over("reader", batch.index, worker, self._sequence)
            self._worker_bells[worker].ring()


def _now_ms() -> float:
    """Return milliseconds of the monotonic clock, which gives the age of a batch even if the system time is set."""
    return time.monotonic() * 1000


def _nothing() -> None:
    pass


def main(spec: ReaderSpec, ready: Callable[..., None]) -> None:
    """Run a reader until SIGTERM."""
    keep_freed_memory(spec.lane.geometry.slot_bytes)  # replies stay near that size
    reader = Reader(spec)
    signal.signal(signal.SIGTERM, reader.stop)
    reader.run(ready)
