"""Slowest record of a writer in every ten seconds, with its receipt, kept in Redis for an hour (keep_slow.lua)."""

import time
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.receipt import BatchReceipt
from cluster_serving.client.wire.slow_record import SlowRecord
from cluster_serving.node.ring.metrics import TIME_DIGITS
from cluster_serving.node.ring.slot import Row

KEEP_SLOW = Script(Path(__file__).with_name("keep_slow.lua").read_text())
_INTERVAL_S = 10.0
_HOUR_MS = 3_600_000
_KEPT = 10


class Slowest:
    """Slowest record since the last one that was kept.

    Args:
        link: connection to Redis.
        job: name of the job.
    """

    def __init__(self, link: Link, job: str) -> None:
        self._link = link
        self._key = keys.slow_key(job)
        self._record: SlowRecord | None = None
        self._due_s = time.monotonic() + _INTERVAL_S

    def offer(self, rows: Sequence[Row], receipt: BatchReceipt, offset_ms: float, published_ms: float) -> None:
        """Look at the published records of a batch, and keep the slowest record if the interval is over.

        Args:
            rows: rows of the records.
            receipt: receipt of the batch.
            offset_ms: milliseconds to add to the node's clock for Redis' clock.
            published_ms: Unix time in ms on Redis' clock.
        """
        timed = [row for row in rows if row.id.find(b"-") == TIME_DIGITS]  # an id of a caller's own tells no time
        if timed:
            row = min(timed, key=attrgetter("id"))
            took_ms = published_ms - int(row.id[:TIME_DIGITS])
            if self._record is None or took_ms > self._record.took_ms:
                whole = receipt.of_record(row.id, row.read_us / 1000 + offset_ms, row.deliveries)
                uri = row.uri.decode(errors="replace")
                self._record = SlowRecord(round(published_ms), round(took_ms, 3), uri, whole)
        if self._record is not None and time.monotonic() >= self._due_s:
            slow, self._record, self._due_s = self._record, None, time.monotonic() + _INTERVAL_S
            told = (slow.encode(), slow.took_ms, slow.at_ms - _HOUR_MS, _KEPT, _HOUR_MS)
            with suppress(ConnectionLost, RedisRefused):  # the records themselves are published
                self._link.run(KEEP_SLOW, [self._key], told)
