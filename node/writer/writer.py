"""The writer process: publishes finished slots.

    slot ──outcome.py──► outcome of each record ──fields.py──► its fields ──address.py──► its address ──finish.lua──► Redis
                               └─ a failure that is no fault of the client ──dead_letters.py──► dead letter, beside the result

Records with a trace are then told to OpenTelemetry, if wanted (span_export.py).

One call of `finish.lua` publishes a slot. A slot is freed only after Redis has answered. If a process dies before the answer, the
slot is published again, and the second call changes nothing. A slot whose outputs had no room for all rows goes back to a worker.

Redis refuses the whole call for a single key, for example the name of a reply stream that the node may not write. The results are
then published one by one. A record whose result is refused becomes a dead letter. Only when Redis refuses the dead letter too, and
therefore the job itself, the writer waits.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence

import structlog

from cluster_serving.client.errors import ConnectionLost, ErrorCode
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.servers.process.backoff import Backoff
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.dead_letter import UNPUBLISHED, Reason
from cluster_serving.node.ring.bell import Bell, Ear
from cluster_serving.node.ring.metrics import ANSWER, WRITE, WRITER, Count, observe_ages
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Row, Slot, now_us
from cluster_serving.node.ring.traceparent import traced
from cluster_serving.node.writer.address import FINISH, Counts, FinishCall, JobAddress
from cluster_serving.node.writer.fields import ResultFields, batch_receipt
from cluster_serving.node.writer.outcome import DEADLY, RowOutcome, row_outcomes
from cluster_serving.node.writer.slowest import Slowest
from cluster_serving.node.writer.span_export import SpanExport
from cluster_serving.node.writer.spec import WriterSpec

log = structlog.get_logger(__name__)

_MOST_BYTES_A_CALL = 16 << 20

_ANSWERED: Counts = (Count.ANSWERED,)
_REPEATED: Counts = (Count.REPEATED,)
_FAILED: Counts = (Count.FAILED,)
_EXPIRED: Counts = (Count.FAILED, Count.EXPIRED)
_DEAD: Counts = (Count.FAILED, Count.DEAD)


class Writer:
    """Publishes the slots of one lane."""

    def __init__(self, spec: WriterSpec) -> None:
        lane = spec.lane
        self._spec = spec
        self._job = JobAddress.of(lane.job, spec.result_ttl_ms, spec.max_dead_letters, spec.max_dead_letter_bytes)
        self._ring = Ring(lane.geometry, lane.ring_fd)
        self._bell = Bell(lane.writer_bell)
        self._ear = Ear(self._bell)
        self._reader_bell = Bell(lane.reader_bell)
        self._worker_bells = [Bell(fd) for fd in lane.worker_bells]
        self._link = Link(lane.redis)
        self._slowest = Slowest(self._link, lane.job)
        self._count = self._ring.counters[WRITER]
        self._measures = self._ring.measures[WRITER]
        self._stopping = False
        self._backoff = Backoff()
        self._untold, self._told_s = 0, float("-inf")
        self._spans = SpanExport(lane.job, lane.node, self._count) if spec.spans else None

    def stop(self, *_signal: object) -> None:
        """Make `run` return once no slot is left to publish. Safe in a signal handler."""
        self._stopping = True
        self._bell.ring()

    def run(self) -> None:
        """Serve until stopped."""
        for interrupted in self._ring.every(State.PUBLISHING):
            self._ring.move("writer", interrupted, State.DONE)
        for bell in self._worker_bells:
            bell.ring()  # the previous writer may have died between giving back and ringing
        while True:
            slot = self._ring.oldest(State.DONE)
            if slot is not None:
                self._ring.move("writer", slot, State.PUBLISHING)
                self._publish(slot)
                if self._ring.slots[slot].unfinished:
                    self._give_back(slot)
                    continue
                self._ring.move("writer", slot, State.FREE)
                if self._ring.reader_wants:
                    self._reader_bell.ring()
            elif self._stopping:
                break
            else:
                self._bell.hear()
        if self._spans is not None:
            self._spans.close()

    def _give_back(self, slot: int) -> None:
        """Let a worker run the rows that had no room in the outputs."""
        self._ring.slots[slot].make_room()
        least = self._ring.least_loaded()
        worker = self._ring.owner(slot) if least is None else least[0]
        self._ring.hand_over("writer", slot, worker)
        self._worker_bells[worker].ring()

    def _publish(self, slot: int) -> None:
        """Publish the result of each record: its outcome (outcome.py), its fields (fields.py), its address (address.py)."""
        spec, ring = self._spec, self._ring
        held, now_ms, offset_ms = ring.slots[slot], ring.redis_ms(), ring.clock_offset_ms
        begun_us = now_us()
        receipt = batch_receipt(
            held,
            now_ms,
            node=spec.lane.node,
            model=spec.model_hash,
            ttl_ms=spec.result_ttl_ms,
            worker=spec.lane.first_worker + ring.owner(slot),
            clock_offset_ms=offset_ms,
        )
        results = ResultFields(
            held,
            receipt,
            clock_offset_ms=offset_ms,
            legacy_filter_text=spec.legacy_filter_text,
            legacy=spec.legacy,
        )
        batch = receipt.encode()
        ended = list(row_outcomes(held, now_ms))
        if self._answer(ended, results, batch):
            for each in ended:
                self._answer_alone(each, results, batch)
        else:
            observe_ages(ANSWER, self._measures, [each.row.id for each in ended], ring.redis_ms())
            self._count_stages(held, [each.row.read_us for each in ended], begun_us)
            self._slowest.offer([each.row for each in ended], receipt, offset_ms, ring.redis_ms())
        if self._spans is not None:
            self._spans.offer(ended, receipt, offset_ms, ring.redis_ms())

    def _answer_alone(self, ended: RowOutcome, results: ResultFields, batch: bytes) -> None:
        """Publish the result of a record by itself. A result that Redis refuses becomes a dead letter."""
        while refusal := self._answer([ended], results, batch):
            call = FinishCall(self._job, batch)
            call.bury(ended.row, _DEAD, self._reason(ended.row, UNPUBLISHED, f"Redis refuses the result: {refusal}"))
            if not self._finish(call):
                return
            self._wait(refusal)

    def _count_stages(self, slot: Slot, read_us: Sequence[int], begun_us: int) -> None:
        """Add the times of the stages of published records, which a batch has in common but for the time of the read."""
        self._ring.published_us = published_us = now_us()
        count, records, took_us = self._count, len(read_us), published_us - begun_us
        filled_us, started_us, ended_us = slot.times_us
        count[Count.BUSY_US] += took_us
        count[Count.FILL_US] += filled_us * records - sum(read_us)
        count[Count.WRITE_US] += took_us * records
        if started_us:
            count[Count.WAIT_US] += (started_us - filled_us) * records
            count[Count.RUN_US] += (ended_us - started_us) * records
            count[Count.PUBLISH_US] += (begun_us - ended_us) * records

    def _answer(self, ended: Sequence[RowOutcome], results: ResultFields, batch: bytes) -> str:
        """Publish results, and return the refusal of Redis, or an empty text."""
        call = FinishCall(self._job, batch)
        for each in ended:
            answer = results.answer(each)
            reason: Reason | None = None
            counts = _FAILED if answer.failed else _ANSWERED
            if (error := each.outcome.error) is not None:
                code, message = error
                if code in DEADLY:
                    counts = _DEAD
                    reason = self._reason(each.row, code, message, each.outcome.detail)
                elif code == ErrorCode.DEADLINE_EXCEEDED:
                    counts = _EXPIRED
            call.add(each.row, answer.fields, counts, reason)
            if call.size > _MOST_BYTES_A_CALL:
                if refusal := self._finish(call):
                    return refusal
                call = FinishCall(self._job, batch)
        return self._finish(call) if call.counts else ""

    def _reason(self, row: Row, code: str, message: str, traceback: str = "") -> Reason:
        return Reason(
            code=code,
            message=message,
            traceback=traceback,
            entry=row.id.decode(),
            node=self._spec.lane.node,
            model=self._spec.model_hash,
            died_ms=round(self._ring.redis_ms()),
            deliveries=row.deliveries,
        )

    def _finish(self, call: FinishCall) -> str:
        """Call the script until Redis answers, and count the rows. Return the refusal of Redis, or an empty text."""
        keys, arguments = call.keys(), call.arguments()
        while True:
            self._ring.beat(WRITER)
            try:
                if not self._link.connected:
                    with self._ring.connecting(WRITER):
                        self._link.connect()
                begun_s = time.perf_counter()
                repeated = self._link.run(FINISH, keys, arguments)
            except ConnectionLost as error:
                self._wait(str(error))
                continue
            except RedisRefused as refusal:
                return str(refusal)
            took_s = time.perf_counter() - begun_s
            WRITE.observe(self._measures, took_s)
            self._count[Count.BLOCKED_US] += round(took_s * 1e6)
            if self._backoff.failing:
                log.info("publishing to Redis again")
                self._count[Count.RECONNECTS] += 1
            self._backoff.reset()
            for number in repeated:
                call.counts[number - 1] = _REPEATED
            for counts, rows in Counter(call.counts).items():
                for count in counts:
                    self._count[count] += rows
            if call.dead:
                self._tell(*call.dead[-1], len(call.dead))
            return ""

    def _tell(self, row: Row, reason: Reason, records: int) -> None:
        """Log the dead letters since the last line, at most once a second."""
        self._untold += records
        if time.monotonic() - self._told_s >= 1:
            told = {"code": reason.code, "reason": reason.message, "records": self._untold, **traced(row.traceparent)}
            log.warning("dead letter", uri=row.uri.decode(errors="replace"), **told)
            self._untold, self._told_s = 0, time.monotonic()

    def _wait(self, reason: str) -> None:
        self._link.close()  # the next connection may reach a writable master
        delay_s = self._backoff.next_s()
        log.warning("cannot publish to Redis", reason=reason, retry_in_s=round(delay_s, 1))
        self._ear.wait(delay_s)


def main(spec: WriterSpec, ready: Callable[..., None]) -> None:
    """Run a writer until SIGTERM."""
    writer = Writer(spec)
    signal.signal(signal.SIGTERM, writer.stop)
    ready()
    writer.run()
