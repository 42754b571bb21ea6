"""Observer of a run: reads the data visible to clients and operators again and again, and notes it in the history."""

import hashlib
import threading
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import redis

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.protocol.results import result_of
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.reply import read_replies
from cluster_serving.node.chaos.history import History, SeenDeadLetter, SeenOutcome
from cluster_serving.node.chaos.learn import Answers
from cluster_serving.node.chaos.records import RIGHT, SentRecord

_TURN_S = 0.05
_PAGE = 500
_AGAIN = 50  # known outcomes read again in each turn


class Observer(threading.Thread):
    """Client that reads outcomes, and removes none.

    Args:
        settings: the run's Redis.
        job: stream of the run.
        reply: key of the reply stream.
        answers: the right answers.
        history: receives the outcomes.
    """

    def __init__(self, settings: RedisSettings, job: str, reply: str, answers: Answers, history: History) -> None:
        super().__init__(name="watch", daemon=True)
        self._redis: Any = settings.client()
        self._redis.set_response_callback("XREAD", _as_it_came)  # for `read_replies`
        self._job = job
        self._prefix = keys.result_prefix(job)
        self._reply = reply
        self._answers = answers
        self._history = history
        self._last_reply = b"0-0"
        self._beats: dict[tuple[int, int], Heartbeat] = {}
        self._rng = Random(0)  # noqa: S311 - not for secrets
        self._over = threading.Event()
        self.failure: BaseException | None = None

    def open(self) -> None:
        """Create the reply stream, because results go only to an existing stream."""
        self._redis.xgroup_create(self._reply, "chaos", "$", mkstream=True)

    def cease(self) -> None:
        """Stop reading."""
        self._over.set()

    def finish(self) -> None:
        """Stop the thread, then read every outcome once more."""
        self.cease()
        self.join()
        self.check()
        self.look(list(self._history.records))
        self._history.replies.clear()  # a reply may have come before its record was noted
        self._last_reply = b"0-0"
        self._count_replies()
        letters: list[SeenDeadLetter] = []
        for _entry, fields in self._redis.xrange(keys.dead_key(self._job)):
            told: dict[str, Any] = msgspec.json.decode(fields[keys.DEAD_LETTER])
            uri = fields.get(keys.URI, b"").decode()
            letters.append(SeenDeadLetter(uri, str(told.get("code")), int(told.get("deliveries", 1))))
        self._history.dead_letters = letters
        self._redis.close()

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        """Read until told to stop."""
        while not self._over.wait(_TURN_S):
            try:
                known = self._history.outcomes
                waiting = [uri for uri in list(self._history.records) if uri not in known]
                self.look(waiting + self._rng.sample(list(known), min(_AGAIN, len(known))))
                self._count_replies()
                for key in self._redis.scan_iter(keys.node_key(self._job, "*"), count=_PAGE):
                    text: Any = self._redis.get(key)
                    if text:
                        beat = Heartbeat.decode(text)
                        self._beats[beat.pid, beat.started_ms] = beat
            except (redis.RedisError, OSError):
                self._redis.connection_pool.disconnect()  # Redis is away, as planned
            except BaseException as error:  # raised by `check`
                self.failure = error
                return

    def look(self, uris: Sequence[str]) -> None:
        """Read the results of the records with these uris."""
        records = [self._history.records[uri] for uri in uris]
        hashes = [record for record in records if not record.replies]
        for first in range(0, len(hashes), _PAGE):
            page = hashes[first : first + _PAGE]
            pipe = self._redis.pipeline(transaction=False)
            for record in page:
                pipe.hgetall(self._prefix + self._history.result_name(record))
            for record, found in zip(page, pipe.execute(), strict=True):
                if found:
                    fields = [part for pair in found.items() for part in pair]
                    self._history.seen(record.uri, self._outcome(record, fields))
                elif record.uri in self._history.outcomes:
                    self._history.vanished(record.uri)

    def _outcome(self, record: SentRecord, fields: Sequence[bytes]) -> SeenOutcome:
        pairs = sorted(zip(fields[::2], fields[1::2], strict=True))
        digest = hashlib.blake2b(repr(pairs).encode(), digest_size=16).digest()
        try:
            result = result_of(fields, record.uri)
            receipt = result.receipt
        except CodecError as error:
            return SeenOutcome("wrong", f"cannot be read: {error}", digest)
        by = f" (node {receipt.node}, entry {receipt.entry})" if receipt else ""
        deliveries = receipt.deliveries if receipt else 1
        if result.error is not None:
            return SeenOutcome(result.error[0], result.error[1] + by, digest, deliveries)
        if self._answers.right(record.dialect, record.sample, result):
            return SeenOutcome(RIGHT, by, digest, deliveries)
        return SeenOutcome("wrong", f"{result!r}"[:200] + by, digest, deliveries)

    def _count_replies(self) -> None:
        while streams := self._redis.xread({self._reply: self._last_reply}, count=_PAGE):
            ((_, entries),) = streams
            self._last_reply = entries[-1][0]
            for reply in read_replies(entries):
                uri = reply.uri.decode()
                if uri in self._history.records:
                    self._history.replies[uri] += 1
                    fields, receipt = reply.unpack()
                    fields += keys.RECEIPT, receipt.joined().encode()
                    self._history.seen(uri, self._outcome(self._history.records[uri], fields))

    def total(self, count: str) -> int:
        """Return the sum of a heartbeat's count over all lives of all nodes, as far as heartbeats were read."""
        return sum(int(beat.figures.get(count, 0)) for beat in self._beats.values())

    def left_in_redis(self) -> tuple[int, int, list[str]]:
        """Return the number of pending entries, the number of entries in the stream, and the consumers of the group."""
        with_group: Any = self._redis
        try:
            pending = int(with_group.xpending(self._job, keys.GROUP)["pending"])
            consumers = [each["name"].decode() for each in with_group.xinfo_consumers(self._job, keys.GROUP)]
        except redis.ResponseError:
            pending, consumers = 0, []  # no group
        return pending, int(with_group.xlen(self._job)), consumers


def _as_it_came(reply: Any, **_: Any) -> Any:
    return reply
