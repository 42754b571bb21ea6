"""Records through the queue, by the project's own client, and everything that became of them.

What is noted down and how it is checked is the business of `cluster_serving.node.chaos`: every record that was accepted has one
right outcome, and it never changes, however late it is read again.
"""

import threading
import time
from typing import Any, Final, NamedTuple

import numpy as np

from cluster_serving.client import ConnectionLost, InputQueue, QueueFull
from cluster_serving.client.keys import DEFAULT_JOB, reply_key
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.result import Result
from cluster_serving.node.chaos.history import Acceptance, History, check
from cluster_serving.node.chaos.learn import Answers
from cluster_serving.node.chaos.observer import Observer
from cluster_serving.node.chaos.records import RecordKind, SentRecord
from support.wait import wait_until

_TICK_S: Final = 0.02
_BURST: Final = 32
_PATIENCE_S: Final = 60.0


class Answered(NamedTuple):
    """A record's answer: when it was seen first (monotonic); its entry, its node, and when its batch was done (Unix time)."""

    seen_s: float
    entry: str
    node: str
    done_s: float


class Book(Answers):
    """Knows which answers of the paced model are right, and keeps the first receipt of each record."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: dict[int, Answered] = {}

    def right(self, dialect: object, sample: int, result: Result) -> bool:
        """Keep the first receipt of a record, and return whether the answer is the record's own number."""
        receipt = result.receipt
        assert receipt is not None
        done_s = (receipt.filled_ms + receipt.wait_ms + receipt.run_ms) / 1000
        self.answered.setdefault(sample, Answered(time.monotonic(), receipt.entry, receipt.node, done_s))
        return bool(result.outputs["y"][0] == sample)


class Load(threading.Thread):
    """A program that enqueues at a steady rate; for a block.

    Args:
        redis: where the queue is.
        client: the same for the client.
        seconds: that a batch takes which holds one of these records.
        rate: records a second, at most.
        waiting: how many may be unanswered.
    """

    def __init__(
        self, redis: RedisSettings, client: dict[str, Any], *, seconds: float, rate: float, waiting: int
    ) -> None:
        super().__init__(name="load", daemon=True)
        self.book = Book()
        self.history = History(batch=1)
        self._queue = InputQueue(patience_s=_PATIENCE_S, **client)
        self._prefix = f"load-{time.time_ns():x}"
        self._watch = Observer(redis, DEFAULT_JOB, reply_key(DEFAULT_JOB, self._prefix), self.book, self.history)
        self.rate = rate
        self._seconds, self._waiting = seconds, waiting
        self._over = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> "Load":
        self._watch.open()
        self._watch.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.cease()
        self.join()
        self._queue.close()

    def await_answers(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until so many more records are answered."""
        wanted = len(self.history.outcomes) + count
        wait_until(lambda: len(self.history.outcomes) >= wanted, f"{count} more answers", timeout_s)

    def settle(self, timeout_s: float = 90.0) -> None:
        """Send no more, wait for what is under way, read everything once more, and check it.

        Raises:
            AssertionError: an accepted record has no answer, or a wrong one, or one that was another before.
        """
        self._over.set()
        self.join()
        if self._failure is not None:
            raise self._failure
        wait_until(lambda: not self.history.unanswered, "every accepted record is answered", timeout_s)
        wait_until(
            lambda: self._watch.left_in_redis()[:2] == (0, 0), "the stream is empty, nothing is pending", timeout_s
        )
        self._watch.finish()
        failed = [
            f"{each.check}: {each.failed} not, first: {each.first}" for each in check(self.history) if not each.passed
        ]
        assert not failed, failed

    def run(self) -> None:
        """Send until it is over."""
        try:
            self._send_until_over()
        except BaseException as error:  # told to whoever settles the load
            self._failure = error

    def _send_until_over(self) -> None:
        number, due, last_s = 0, 0.0, time.monotonic()
        while not self._over.wait(_TICK_S):
            now_s = time.monotonic()
            room = self._waiting - (self.history.accepted - len(self.history.outcomes))
            # What could not be sent in time is not sent in a burst later.
            due, last_s = min(due + self.rate * (now_s - last_s), _BURST, room), now_s
            while due >= 1:
                number += 1
                due -= 1
                self._send(number)

    def _send(self, number: int) -> None:
        record = SentRecord(f"{self._prefix}-{number}", RecordKind.GOOD, number)
        self.history.sending(record)
        try:
            entry = self._queue.enqueue(record.uri, x=np.array([self._seconds, number], np.float32))
        except QueueFull:
            self.history.sent(record.uri, Acceptance.REFUSED)
        except ConnectionLost as error:
            self.history.sent(record.uri, Acceptance.REFUSED if error.unsent else Acceptance.UNKNOWN)
        else:
            self.history.sent(record.uri, Acceptance.ACCEPTED, entry)
