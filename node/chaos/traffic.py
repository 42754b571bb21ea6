"""Load of a run: sends records at a steady rate while there are faults, and notes Redis' answers."""

import threading
import time
from collections.abc import Sequence
from itertools import zip_longest

import redis

from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.admission import Records
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.admission import enqueue
from cluster_serving.client.threads.link import Link
from cluster_serving.node.chaos.history import Acceptance, History
from cluster_serving.node.chaos.records import Encoder, Mix, SentRecord

_TICK_S = 0.02
_CHUNK = 16


class Load(threading.Thread):
    """Client that never sends a record twice.

    Args:
        settings: the run's Redis.
        job: stream of the run.
        mix: chooses the next record.
        encoder: makes the fields of the record.
        history: receives every record that was sent.
        rate: most records per second, and also most records that wait for their outcome.
    """

    def __init__(
        self, settings: RedisSettings, job: str, mix: Mix, encoder: Encoder, history: History, rate: float
    ) -> None:
        super().__init__(name="load", daemon=True)
        self._link = Link(settings)
        self._job = job
        self._mix = mix
        self._encoder = encoder
        self._history = history
        self._rate = rate
        self._over = threading.Event()
        self.failure: BaseException | None = None

    def cease(self) -> None:
        """Stop sending."""
        self._over.set()

    def finish(self) -> None:
        """Stop sending, and wait until the thread has ended."""
        self.cease()
        self.join()
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        """Send until told to stop."""
        try:
            begun_s = time.monotonic()
            due = 0.0
            while not self._over.wait(_TICK_S):
                at_s = time.monotonic() - begun_s
                waiting = self._history.accepted - len(self._history.outcomes)
                # Records that could not be sent in time are not sent later in a burst.
                due = min(due + self._rate * _TICK_S, 2 * _CHUNK, self._rate - waiting)
                while due >= 1:
                    records = [self._mix.next(at_s, time.time_ns() // 1_000_000) for _ in range(min(int(due), _CHUNK))]
                    self._send(records)
                    due -= len(records)
        except BaseException as error:  # raised by `finish`
            self.failure = error
        finally:
            self._link.close()

    def _send(self, records: Sequence[SentRecord]) -> None:
        batch = [self._encoder.fields(record) for record in records]
        for record in records:
            self._history.sending(record)
        taken: list[bytes] = []
        rest = Acceptance.REFUSED
        try:
            taken = enqueue(self._link, self._job, Records(batch, []))
        except ConnectionLost:
            rest = Acceptance.UNKNOWN
        except redis.ResponseError:
            self._link.close()
        for record, entry in zip_longest(records, taken):
            self._history.sent(record.uri, Acceptance.ACCEPTED if entry else rest, entry.decode() if entry else "")
