"""The writer process: publishes batches that the workers have finished, with one call of `finish.lua` per batch.

A slot is freed only after Redis has answered. If a process dies before the answer, the slot is published again, and the second
call changes nothing.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import redis
import structlog

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost, ErrorCode
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.servers.process.backoff import Backoff
from cluster_serving.client.threads.link import Link
from cluster_serving.node.ring.bell import Bell, Ear
from cluster_serving.node.ring.metrics import WRITE, WRITER, Count
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Row
from cluster_serving.node.ring.traceparent import traced
from cluster_serving.node.writer.dead_letters import encode_reason
from cluster_serving.node.writer.results import DEADLY, Published, Results
from cluster_serving.node.writer.spec import WriterSpec

log = structlog.get_logger(__name__)

FINISH = Script(Path(__file__).with_name("finish.lua").read_text())
_MOST_BYTES_A_CALL = 16 << 20

# Kinds of rows, each with its counters in _COUNTS.
_ANSWERED, _REPEATED, _FAILED, _DEAD, _EXPIRED = range(5)
_COUNTS = (
    (Count.ANSWERED,),
    (Count.REPEATED,),
    (Count.FAILED,),
    (Count.FAILED, Count.DEAD),
    (Count.FAILED, Count.EXPIRED),
)


class Writer:
    """Publishes the slots of one lane."""

    def __init__(self, spec: WriterSpec) -> None:
        lane = spec.lane
        self._keys = (lane.job.encode(), keys.dead_key(lane.job).encode())
        self._settings = (keys.GROUP.encode(), b"%d" % spec.result_ttl_ms, b"%d" % spec.max_dead_letters)
        self._ring = Ring(lane.geometry, lane.ring_fd)
        self._bell = Bell(lane.writer_bell)
        self._ear = Ear(self._bell)
        self._reader_bell = Bell(lane.reader_bell)
        self._link = Link(lane.redis)
        self._node = lane.node
        self._first_worker = lane.first_worker
        self._model_hash = spec.model_hash
        self._results = Results(
            lane.job,
            lane.node,
            model=spec.model_hash,
            ttl_ms=spec.result_ttl_ms,
            legacy_filter_text=spec.legacy_filter_text,
        )
        self._count = self._ring.counters[WRITER]
        self._measures = self._ring.measures[WRITER]
        self._stopping = False
        self._backoff = Backoff()
        self._untold, self._told_s = 0, float("-inf")

    def stop(self, *_signal: object) -> None:
        """Make `run` return once no slot is left to publish. Safe in a signal handler."""
        self._stopping = True
        self._bell.ring()

    def run(self) -> None:
        """Serve until stopped."""
        for interrupted in self._ring.every(State.PUBLISHING):
            self._ring.move("writer", interrupted, State.DONE)
        while True:
            slot = self._ring.oldest(State.DONE)
            if slot is not None:
                self._ring.move("writer", slot, State.PUBLISHING)
                self._publish(slot)
                self._ring.move("writer", slot, State.FREE)
                if self._ring.reader_wants:
                    self._reader_bell.ring()
            elif self._stopping:
                return
            else:
                self._bell.hear()

    def _publish(self, slot: int) -> None:
        ring, results = self._ring, self._results
        held, now_ms, offset_ms = ring.slots[slot], ring.redis_ms(), ring.clock_offset_ms
        worker = self._first_worker + ring.owner(slot)
        batch = results.batch(held, now_ms, clock_offset_ms=offset_ms, worker=worker)
        call = _Call(batch)
        for finished in results.of(held, batch, now_ms, clock_offset_ms=offset_ms):
            why = b""  # stays empty for a record that becomes no dead letter
            if finished.error and finished.error[0] in DEADLY:
                code, message = finished.error
                self._tell(finished.row, code, message)
                why = encode_reason(
                    code=code,
                    message=message,
                    traceback=finished.detail,
                    entry=finished.row.id.decode(),
                    node=self._node,
                    model=self._model_hash,
                    died_ms=round(ring.redis_ms()),
                )
            call.add(finished, why)
            if call.size > _MOST_BYTES_A_CALL:
                self._finish(call)
                call = _Call(batch)
        if call.kinds:
            self._finish(call)

    def _tell(self, row: Row, code: str, message: str) -> None:
        """Log a dead letter, at most once a second, with the number of dead letters since the last log line."""
        self._untold += 1
        if time.monotonic() - self._told_s >= 1:
            told = {"code": code, "reason": message, "records": self._untold, **traced(row.traceparent)}
            log.warning("dead letter", uri=row.uri.decode(errors="replace"), **told)
            self._untold, self._told_s = 0, time.monotonic()

    def _finish(self, call: "_Call") -> None:
        keys_of_call = [*self._keys, *call.keys()]
        arguments = [*self._settings, *call.arguments()]
        while True:
            self._ring.beat(WRITER)
            begun_s = time.perf_counter()
            try:
                repeated = self._link.run(FINISH, keys_of_call, arguments)
            except (ConnectionLost, redis.ResponseError) as error:
                self._link.close()  # the next connection may reach a writable master
                delay_s = self._backoff.next_s()
                log.warning("cannot publish to Redis", reason=str(error), retry_in_s=round(delay_s, 1))
                self._ear.wait(delay_s)
                continue
            WRITE.observe(self._measures, time.perf_counter() - begun_s)
            if self._backoff.failing:
                log.info("publishing to Redis again")
                self._count[Count.RECONNECTS] += 1
            self._backoff.reset()
            for number in repeated:
                call.kinds[number - 1] = _REPEATED
            for kind, rows in Counter(call.kinds).items():
                for count in _COUNTS[kind]:
                    self._count[count] += rows
            return


class _Call:
    """Rows of one call of the script, and their common part of a receipt."""

    def __init__(self, batch: bytes) -> None:
        self.kinds: list[int] = []
        self.size = 0
        self._batch = batch
        self._streams: dict[bytes, bytes] = {}  # key of a reply stream: number of the stream in the script
        self._hashes: list[bytes] = []
        self._dead: list[bytes] = []
        self._rows: list[bytes] = []

    def add(self, finished: Published, why: bytes) -> None:
        """Add a row. `why` is the reason of a dead letter, or empty."""
        target, row, fields, failed, error, _ = finished
        if row.reply:
            number = self._streams.get(target) or self._streams.setdefault(target, b"%d" % (len(self._streams) + 1))
            self._rows += (row.id, number, *fields)
        else:
            self._hashes.append(target)
            self._rows += (row.id, b"0", b"%d" % len(fields), *fields)
        self.size += sum(map(len, fields))
        if why:
            self.kinds.append(_DEAD)
            self._dead += b"%d" % len(self.kinds), why
        elif error and error[0] == ErrorCode.DEADLINE_EXCEEDED:
            self.kinds.append(_EXPIRED)
        else:
            self.kinds.append(_FAILED if failed else _ANSWERED)

    def keys(self) -> list[bytes]:
        """Return the keys of the reply streams and of the result hashes."""
        return [*self._streams, *self._hashes]

    def arguments(self) -> list[bytes]:
        """Return the arguments of the script that describe the rows."""
        counts = b"%d" % len(self._streams), b"%d" % (len(self._dead) // 2)
        return [self._batch, *counts, *self._dead, *self._rows]


def main(spec: WriterSpec, ready: Callable[..., None]) -> None:
    """Run a writer until SIGTERM."""
    writer = Writer(spec)
    signal.signal(signal.SIGTERM, writer.stop)
    ready()
    writer.run()
