"""One reply stream for all waiting calls of a client.

The first waiting thread becomes the reader: it sends the blocking read and hands results to the other waiters. A waiter sleeps
until its result is there, or until the reader has ended and a new reader is needed. No extra thread is needed, and a lone call
has no waiter to wake.
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

_BLOCK_S = 1.0  # time to notice a vanished stream, because Redis does not tell clients that block on the stream
_PATIENCE_S = 1.0  # added to the blocking time of a read, before Redis is taken for lost
_KEPT_S = REPLY_LIFE_MS / 6000  # longest time between two renewals of the stream's time to live
_UNTRIMMED_BYTES = 1 << 16


class Replies:
    """Results for the calls of one client."""

    def __init__(self, settings: RedisSettings, job: str, client: str) -> None:
        self.key = keys.reply_key(job, client)
        self._job = job
        self._link = Link(settings)
        self._last = b"0-0"
        self._touched_s = float("-inf")
        self._trimmed_bytes = 0  # bytes received before the last trim of the stream
        self._idle = False  # True if the last read found no entry
        self._vanished = False
        self._results: dict[str, Result | None] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._followers = 0
        self._reading = False

    def expect(self, uris: list[str]) -> None:
        """Register records that a call will wait for. Call `expect` before the records are enqueued.

        Raises:
            InvalidValue: a record with the same uri is already under way.
        """
        with self._lock:
            if not self._results:
                self._vanished = False
            for uri in uris:
                if uri in self._results:
                    raise InvalidValue(f"two records of uri {uri!r} are under way at once")
                self._results[uri] = None

    def have_stream(self) -> None:
        """Make the stream if it does not exist.

        Call `have_stream` before enqueueing, because results go only to an existing stream.

        Raises:
            QueueFull: Redis has no memory for the stream.
            ConnectionLost: Redis cannot be reached. `unsent` is true.
            RedisRefused: the key of the stream holds another type.
        """
        with self._lock:
            if not self._reading:
                self._open_if_due()

    def forget(self, uri: str) -> None:
        """Remove a record that no call waits for any more."""
        self._results.pop(uri, None)

    def ask(self, uri: str, enqueue: Packet, deadline_s: float) -> Result | None:
        """Enqueue an expected record and wait for the result, in one packet, so that a lone call costs one trip.

        Args:
            uri: uri of the record.
            enqueue: transaction that enqueues the record.
            deadline_s: deadline on the monotonic clock.

        Returns:
            The result. None if another call is reading, or Redis has not taken the record. In both cases nothing is enqueued.

        Raises:
            ResultTimeout: the result did not come in time.
            ConnectionLost: Redis went away. If `unsent` is true, nothing has been enqueued.
            QueueFull: Redis has no memory for a reply stream.
            RedisRefused: the key of the reply stream, or of the job, holds another type.
        """
        with self._lock:
            if self._reading:
                return None
            self._open_if_due()
            if not self._read_for_all(min(deadline_s - time.monotonic(), _BLOCK_S), enqueue):
                return None
        return self.wait(uri, deadline_s)

    def wait(self, uri: str, deadline_s: float) -> Result:
        """Wait for the result of an expected record and return the result.

        Args:
            uri: uri of the record.
            deadline_s: deadline on the monotonic clock.

        Raises:
            ResultTimeout: the result did not come in time.
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
                    # Read after the deadline too, because the result may have come while no thread was reading.
                    if not self._reading:
                        self._read_for_all(min(left_s, _BLOCK_S))
                    if left_s <= 0 and self._results[uri] is None:
                        self.forget(uri)
                        raise no_result(f"of {uri!r} in time", stream_vanished=self._vanished)
        self.forget(uri)
        return result

    def has(self, uri: str) -> bool:
        """Return whether the result of a record is there."""
        return self._results[uri] is not None

    def look(self) -> None:
        """Read the results that have come, without waiting."""
        with self._lock:
            if not self._reading:
                self._read_for_all(0)

    def arrived(self, deadline_s: float) -> list[Result]:
        """Return all available results, and wait for at least one. Not for use beside calls of `wait`.

        Raises:
            ResultTimeout: no result came in time.
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
        """Delete the stream and close the connection. A waiting call gets `ConnectionLost`."""
        with self._lock:
            self._touched_s = float("-inf")
            # While another thread reads, the connection belongs to the other thread. The stream then expires by itself.
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
            error.unsent = True  # the records to enqueue have not been sent
            raise

    def _open(self) -> None:
        try:
            # The cheapest way to make an empty stream. Results go only to an existing stream (NOMKSTREAM).
            self._link.call("XGROUP", "CREATE", self.key, "client", "$", "MKSTREAM")
            # After a failover the ids of a new stream may be smaller than the ids of the old stream.
            self._last = b"0-0"
        except RedisRefused as error:
            if is_out_of_memory(error):
                raise queue_full(f"the reply stream {self.key}: {error}") from error
            if not str(error).startswith("BUSYGROUP"):
                raise RedisRefused(f"cannot make the reply stream {self.key}: {error}") from error
        self._link.call("PEXPIRE", self.key, REPLY_LIFE_MS)
        self._touched_s = time.monotonic()

    def _read_for_all(self, block_s: float, enqueue: Packet | None = None) -> bool:
        """Read for all waiting calls. Called with the lock, which is released while Redis blocks the read.

        Returns:
            False if Redis has not taken the record of `enqueue`.
        """
        self._reading = True
        self._lock.release()
        try:
            arrived = self._read(block_s, enqueue)
        except ConnectionLost as error:
            error.unsent = error.unsent and enqueue is not None  # without `enqueue`, the awaited records have been sent
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
        """Return the results that have come, or None if Redis has not taken the record of `enqueue`."""
        self._link.drop_if_stale()
        if not self._link.connected:
            self._touched_s = float("-inf")  # Redis may have lost the stream meanwhile
            self._open_if_due()
        now_s = time.monotonic()
        untrimmed_bytes = self._link.received_bytes - self._trimmed_bytes
        due: list[Command] = []
        if self._idle or untrimmed_bytes >= _UNTRIMMED_BYTES or now_s - self._touched_s >= _KEPT_S / 2:
            # Keep the stream alive, and delete the entries that have been read.
            self._trimmed_bytes, self._touched_s = self._link.received_bytes, now_s
            due += (("PEXPIRE", self.key, REPLY_LIFE_MS), ("XTRIM", self.key, "MINID", next_id(self._last)))
        first = [enqueue] if enqueue is not None else []
        block = ("BLOCK", max(1, round(block_s * 1000))) if block_s > 0 else ()
        try:
            self._link.set_patience(_PATIENCE_S + math.ceil(max(block_s, 0)))
            self._link.send(*due, *first, ("XREAD", "COUNT", REPLIES_AT_ONCE, *block, "STREAMS", self.key, self._last))
            replies = self._link.read_all(len(due))
            if enqueue is not None and not self._took(self._link.read_all(enqueue.replies)):
                self._link.close()  # the blocking read has been sent already, and no reply to the record will come
                return None
            replies += self._link.read_all(1)
            for reply in replies:
                if isinstance(reply, RedisRefused):
                    raise self._link.raised_for(RedisRefused(f"the reply stream {self.key}: {reply}"))
            entries = read_replies(replies[-1])
            if due and not replies[0]:
                self._vanished = True  # flushed, or lost with a master, together with the results since the last read
                self._open()
        except ConnectionLost as error:
            error.unsent = False
            raise
        self._idle = block_s > 0 and not entries
        if entries:
            self._last = entries[-1][0]
        return [result_in(reply) for _, found in entries for reply in found]

    def _took(self, replies: list[Any]) -> bool:
        """Return whether Redis took the record, according to the replies to the transaction."""
        try:
            return admitted(self._job, executed(replies))[1] is None
        except RedisRefused as error:
            if not cannot_serve(error):
                refused(self._job, error)
            return False
