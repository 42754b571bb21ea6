"""One reply stream for all calls of a client that wait for their results.

Whoever waits reads: the first call to wait sends the blocking read and deals out what arrives, the others sleep until it is
their turn or their result is there. No thread is needed, and a lone call has no one to wake.
"""

import math
import threading
import time
from contextlib import suppress
from typing import Any

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost, InvalidValue, RedisRefused
from cluster_serving.client.protocol.admission import admitted, queue_full, refused
from cluster_serving.client.protocol.reply_stream import REPLIES_AT_ONCE, REPLY_LIFE_MS, next_id, no_result
from cluster_serving.client.protocol.resp import Command, Packet, cannot_serve, executed, is_out_of_memory
from cluster_serving.client.protocol.results import result_in
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.reply import read_replies
from cluster_serving.client.wire.result import Result

_BLOCK_S = 1.0  # a stream that has vanished is noticed so soon: Redis does not tell those that block on it
_PATIENCE_S = 1.0  # beyond what a read blocks: then Redis is taken for lost
_KEPT_S = REPLY_LIFE_MS / 6000  # the life of the stream is renewed at least so often
_UNTRIMMED_BYTES = 1 << 16


class Replies:
    """The results of the calls of one client."""

    def __init__(self, settings: RedisSettings, job: str, client: str) -> None:
        self.key = keys.reply_key(job, client)
        self._job = job
        self._link = Link(settings)
        self._last = b"0-0"
        self._touched_s = float("-inf")
        self._trimmed_bytes = 0  # what had been received when the stream was trimmed
        self._idle = False  # whether the last read found nothing
        self._vanished = False
        self._results: dict[str, Result | None] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._followers = 0
        self._reading = False

    def expect(self, uris: list[str]) -> None:
        """Say that results of these records will be waited for; call it before they are enqueued.

        Raises:
            InvalidValue: one of them is under way already.
        """
        with self._lock:
            if not self._results:
                self._vanished = False
            for uri in uris:
                if uri in self._results:
                    raise InvalidValue(f"two records of uri {uri!r} are under way at once")
                self._results[uri] = None

    def have_stream(self) -> None:
        """Make the stream, unless it is there. Call it before enqueueing: results go only to a stream that exists.

        Raises:
            QueueFull: Redis has no memory for it.
            ConnectionLost: Redis cannot be reached; its `unsent` is true.
            RedisRefused: its key holds something else.
        """
        with self._lock:
            if not self._reading:
                self._open_if_due()

    def forget(self, uri: str) -> None:
        """Nobody waits for this one any more."""
        self._results.pop(uri, None)

    def ask(self, uri: str, enqueue: Packet, deadline_s: float) -> Result | None:
        """Enqueue a record that is expected and wait for its result, in one packet: a lone call costs one trip.

        Args:
            uri: of the record.
            enqueue: the transaction.
            deadline_s: on the monotonic clock.

        Returns:
            The result, or None where another call is reading, or Redis has not taken the record: nothing has been enqueued.

        Raises:
            ResultTimeout: it did not come in time.
            ConnectionLost: Redis went away; where its `unsent` is true nothing has been enqueued.
            QueueFull: Redis has no memory for a reply stream.
            RedisRefused: the reply stream's key, or the job's, holds something else.
        """
        with self._lock:
            if self._reading:
                return None
            self._open_if_due()
            if not self._read_for_all(min(deadline_s - time.monotonic(), _BLOCK_S), enqueue):
                return None
        return self.wait(uri, deadline_s)

    def wait(self, uri: str, deadline_s: float) -> Result:
        """The result of a record that is expected.

        Args:
            uri: of the record.
            deadline_s: on the monotonic clock.

        Raises:
            ResultTimeout: it did not come in time.
            ConnectionLost: Redis went away.
        """
        result = self._results[uri]
        if result is None:
            with self._lock:
                while (result := self._results[uri]) is None:
                    left_s = deadline_s - time.monotonic()
                    if self._reading and left_s > 0:
                        self._followers += 1
                        self._changed.wait(left_s)
                        self._followers -= 1
                        continue
                    # At the end of the time too: the result may have been there while nobody looked.
                    if not self._reading:
                        self._read_for_all(min(left_s, _BLOCK_S))
                    if left_s <= 0 and self._results[uri] is None:
                        self.forget(uri)
                        raise no_result(f"of {uri!r} in time", stream_vanished=self._vanished)
        self.forget(uri)
        return result

    def has(self, uri: str) -> bool:
        """Whether the result of this record is there."""
        return self._results[uri] is not None

    def look(self) -> None:
        """Take what has come, without waiting."""
        with self._lock:
            if not self._reading:
                self._read_for_all(0)

    def arrived(self, deadline_s: float) -> list[Result]:
        """Every result that is there, at least one. Not beside calls of `wait`.

        Raises:
            ResultTimeout: none came in time.
            ConnectionLost: Redis went away.
        """
        with self._lock:
            while True:
                found = [result for result in self._results.values() if result is not None]
                if found:
                    for result in found:
                        self.forget(result.uri)
                    return found
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise no_result("in time", stream_vanished=self._vanished)
                self._read_for_all(min(left_s, _BLOCK_S))

    def close(self) -> None:
        """Delete the stream and close the connection; a call that waits is told that the connection is lost."""
        with self._lock:
            self._touched_s = float("-inf")
            # While another thread reads, the connection is its own; the stream then expires by itself.
            if self._link.connected and not self._reading:
                with suppress(ConnectionLost):
                    self._link.call("DEL", self.key)
            self._link.close()

    def _open_if_due(self) -> None:
        if time.monotonic() - self._touched_s <= _KEPT_S:
            return
        self._link.drop_if_stale()
        try:
            self._open()
        except ConnectionLost as error:
            error.unsent = True  # of whatever was to be enqueued
            raise

    def _open(self) -> None:
        try:
            # The cheapest way to make an empty stream. Results go only to a stream that exists (NOMKSTREAM).
            self._link.call("XGROUP", "CREATE", self.key, "client", "$", "MKSTREAM")
            self._last = b"0-0"  # after a failover the ids of a new stream may be smaller than those of the old one
        except RedisRefused as error:
            if is_out_of_memory(error):
                raise queue_full(f"the reply stream {self.key}: {error}") from error
            if not str(error).startswith("BUSYGROUP"):
                raise RedisRefused(f"cannot make the reply stream {self.key}: {error}") from error
        self._link.call("PEXPIRE", self.key, REPLY_LIFE_MS)
        self._touched_s = time.monotonic()

    def _read_for_all(self, block_s: float, enqueue: Packet | None = None) -> bool:
        """Be the one who reads; called with the lock, which is free while Redis makes us wait.

        Returns:
            Whether Redis took the record of `enqueue`.
        """
        self._reading = True
        self._lock.release()
        try:
            arrived = self._read(block_s, enqueue)
        except ConnectionLost as error:
            error.unsent = error.unsent and enqueue is not None  # records of others that wait have been sent
            raise
        except BaseException:
            self._link.close()  # interrupted: a reply is still to come
            raise
        finally:
            self._lock.acquire()
            self._reading = False
            if self._followers:
                self._changed.notify_all()
        if arrived is None:
            return False
        for result in arrived:
            if result.uri in self._results:
                self._results[result.uri] = result
        return True

    def _read(self, block_s: float, enqueue: Packet | None) -> list[Result] | None:
        """The results that have come, or None when Redis has not taken the record of `enqueue`."""
        self._link.drop_if_stale()
        if not self._link.connected:
            self._touched_s = float("-inf")  # a Redis that has come back may not have the stream
            self._open_if_due()
        try:
            return self._exchange(block_s, enqueue)
        except ConnectionLost as error:
            error.unsent = False
            raise

    def _exchange(self, block_s: float, enqueue: Packet | None) -> list[Result] | None:
        due: list[Command] = []
        if self._due():
            # Keep the stream alive, and delete from it what has been read.
            due += (("PEXPIRE", self.key, REPLY_LIFE_MS), ("XTRIM", self.key, "MINID", next_id(self._last)))
        first = [enqueue] if enqueue is not None else []
        block = ("BLOCK", max(1, round(block_s * 1000))) if block_s > 0 else ()
        self._link.set_patience(_PATIENCE_S + math.ceil(max(block_s, 0)))
        self._link.send(*due, *first, ("XREAD", "COUNT", REPLIES_AT_ONCE, *block, "STREAMS", self.key, self._last))
        replies = self._link.read_all(len(due))
        if enqueue is not None and not self._took(self._link.read_all(enqueue.replies)):
            self._link.close()  # the blocking read has been sent already, and there will be nothing to read
            return None
        entries = read_replies(self._checked([*replies, *self._link.read_all(1)])[-1])
        if due and not replies[0]:
            self._vanished = True  # flushed, or lost with a master, and the results with it that came since then
            self._open()
        self._idle = block_s > 0 and not entries
        if entries:
            self._last = entries[-1][0]
        return [result_in(reply) for _, found in entries for reply in found]

    def _checked(self, replies: list[Any]) -> list[Any]:
        for reply in replies:
            if isinstance(reply, RedisRefused):
                raise self._link.raised_for(RedisRefused(f"the reply stream {self.key}: {reply}"))
        return replies

    def _took(self, replies: list[Any]) -> bool:
        """Whether Redis took the record, by what it answered to the transaction."""
        try:
            return admitted(self._job, executed(replies))[1] is None
        except RedisRefused as error:
            if not cannot_serve(error):
                refused(self._job, error)
            return False

    def _due(self) -> bool:
        now_s = time.monotonic()
        untrimmed_bytes = self._link.received_bytes - self._trimmed_bytes
        if not self._idle and untrimmed_bytes < _UNTRIMMED_BYTES and now_s - self._touched_s < _KEPT_S / 2:
            return False
        self._trimmed_bytes, self._touched_s = self._link.received_bytes, now_s
        return True
