"""A client of the queue for loads: records are encoded once and answers not decoded, so that little of the CPU time is its own."""

import math
import time
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from bench.records import DISTINCT, RECORDS
from cluster_serving.client import keys
from cluster_serving.client.protocol.admission import CHUNK, CHUNK_BYTES, Records, admitted, deadline, transaction
from cluster_serving.client.protocol.reply_stream import ReplyStream
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.receipt import SplitReceipt
from cluster_serving.client.wire.reply import Reply, read_replies
from cluster_serving.client.wire.values import encode_record

_PATIENCE_S = 30.0
_POLL_S = 0.1


class Answer(NamedTuple):
    """Answer to request `number`; `error`: as it came over the queue, over HTTP the status of a failure; HTTP has no `receipt`."""

    number: int
    error: bytes = b""
    receipt: SplitReceipt | None = None


class QueueClient:
    """Sends numbered records to a job and gives what comes back; one thread may send while another receives.

    `at_once`: how many records `send` takes at most.
    """

    def __init__(self, port: int, job: str, content: str, traced_each: int = 0) -> None:
        """Connect.

        Args:
            port: of Redis, on this machine.
            job: its name.
            content: one of `RECORDS`.
            traced_each: so many records carry a trace, of which one is sampled; 0: none carries one.
        """
        settings = RedisSettings(port=port, timeout_s=_PATIENCE_S)
        self._job, self._traced_each = job, traced_each
        self._sending, self._receiving = Link(settings), Link(settings)
        self._rows = [encode_record("x", RECORDS[content](number))[2:] for number in range(DISTINCT)]
        self.at_once = max(1, min(CHUNK, CHUNK_BYTES // sum(map(len, self._rows[0]))))
        self._stream = ReplyStream(keys.reply_key(job, f"{time.time_ns():x}"))
        self._stream.made(self._receiving.exchange(*self._stream.make()), time.monotonic())

    def send(self, numbers: Sequence[int], lives_s: Sequence[float] | None = None) -> int:
        """Enqueue these records, each with so many seconds to be begun in; how many of them were admitted, from the first on."""
        records = [
            Records([self._fields(number)], [*self._stream.reply, *deadline(life_s)])
            for number, life_s in zip(numbers, lives_s or repeat(math.inf), strict=False)
        ]
        taken, _ = admitted(self._job, self._sending.exchange(transaction(self._job, *records)))
        return len(taken)

    def receive(self) -> list[Answer]:
        """Return the answers that have come; an empty list after a tenth of a second without anything."""
        replies = self._receiving.exchange(*self._stream.read(time.monotonic(), _POLL_S))
        return [_answer(reply) for reply in read_replies(self._stream.receive(replies))]

    def close(self) -> None:
        """Delete the reply stream."""
        self._receiving.call("DEL", self._stream.key)
        self._receiving.close()
        self._sending.close()

    def _fields(self, number: int) -> Fields:
        fields = [keys.URI, b"%d" % number, *self._rows[number % DISTINCT]]
        if self._traced_each:
            sampled = number % self._traced_each == 0
            fields += keys.TRACEPARENT, b"00-%032x-%016x-%02x" % (number + 1, number + 1, sampled)
        return fields


def _answer(reply: Reply) -> Answer:
    fields, receipt = reply.unpack()
    error = fields[fields.index(keys.ERROR) + 1] if keys.ERROR in fields else b""
    return Answer(int(reply.uri), error, receipt)
