"""The writer process: publishes what the workers have finished, one call of `finish.lua` a batch.

A slot is freed when Redis has answered, not before: whatever dies in between, the slot is published again, and the second
time changes nothing.
"""

import signal
from collections.abc import Callable
from pathlib import Path

import redis
import structlog

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.link import Argument, Link, Script
from cluster_serving.node.backoff import Backoff
from cluster_serving.node.bell import Bell, Ear
from cluster_serving.node.metrics import WRITER, Count
from cluster_serving.node.results import Results
from cluster_serving.node.ring import Ring, State
from cluster_serving.node.slot import Slot
from cluster_serving.node.specs import WriterSpec

log = structlog.get_logger(__name__)

FINISH = Script(Path(__file__).with_name("finish.lua").read_text())
_MOST_BYTES_A_CALL = 16 << 20


class Writer:
    """Publishes the slots of one lane."""

    def __init__(self, spec: WriterSpec) -> None:
        lane = spec.lane
        self._stream = lane.job
        self._ttl_ms = spec.result_ttl_ms
        self._ring = Ring(lane.geometry, lane.ring_fd)
        self._bell = Bell(lane.writer_bell)
        self._ear = Ear(self._bell)
        self._reader_bell = Bell(lane.reader_bell)
        self._link = Link(lane.redis)
        self._results = Results(lane.job, lane.node, legacy_filter_text=spec.legacy_filter_text)
        self._count = self._ring.counters[WRITER]
        self._stopping = False
        self._backoff = Backoff()

    def stop(self, *_signal: object) -> None:
        """Return from `run` once nothing is left to publish. Safe in a signal handler."""
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
                self._publish(self._ring.slots[slot])
                self._ring.move("writer", slot, State.FREE)
                if self._ring.reader_wants:
                    self._reader_bell.ring()
            elif self._stopping:
                return
            else:
                self._bell.hear()

    def _publish(self, slot: Slot) -> None:
        targets: list[Argument] = []
        arguments: list[Argument] = []
        rows = failed = size = 0
        for target, row, fields in self._results.of(slot):
            targets.append(target)
            arguments += (row.id, b"reply" if row.reply else b"hash", len(fields), *fields)
            rows += 1
            failed += keys.ERROR in fields
            size += sum(map(len, fields))
            if size > _MOST_BYTES_A_CALL:
                self._finish(targets, arguments, rows, failed)
                targets, arguments, rows, failed, size = [], [], 0, 0, 0
        if rows:
            self._finish(targets, arguments, rows, failed)

    def _finish(self, targets: list[Argument], arguments: list[Argument], rows: int, failed: int) -> None:
        while True:
            try:
                finished = self._link.run(FINISH, [self._stream, *targets], [keys.GROUP, self._ttl_ms, *arguments])
            except (ConnectionLost, redis.ResponseError) as error:
                self._link.close()  # the next connection may reach a master that can be written
                delay_s = self._backoff.next_s()
                log.warning("cannot publish to Redis", reason=str(error), retry_in_s=round(delay_s, 1))
                self._ear.wait(delay_s)
                continue
            if self._backoff.failing:
                log.info("publishing to Redis again")
            self._backoff.reset()
            repeated = rows - int(finished)
            self._count[Count.REPEATED] += repeated
            self._count[Count.FAILED] += failed
            self._count[Count.ANSWERED] += rows - failed - repeated
            return


def main(spec: WriterSpec, ready: Callable[..., None]) -> None:
    """Run a writer until SIGTERM."""
    writer = Writer(spec)
    signal.signal(signal.SIGTERM, writer.stop)
    ready()
    writer.run()
