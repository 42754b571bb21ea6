"""One reply stream for all calls of a client that wait for their results.

Whoever waits reads: the first call to wait sends the blocking read and deals out what arrives, the others sleep until it is
their turn or their result is there. No thread is needed, and a lone call has no one to wake.
"""

import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import redis

from cluster_serving.client import keys
from cluster_serving.client.commands import REPLIES_AT_ONCE, REPLY_LIFE_MS, memory_full, next_id, read_replies, reply_of
from cluster_serving.client.connection import RedisSettings
from cluster_serving.client.errors import ConnectionLost, InvalidValue, ResultTimeout
from cluster_serving.client.link import Argument, Link, is_out_of_memory
from cluster_serving.client.wire import Result

_BLOCK_S = 10.0
_PATIENCE_S = 1.0  # beyond what a read blocks: then Redis is taken for lost
_KEPT_S = REPLY_LIFE_MS / 6000  # the life of the stream is renewed at least so often
_UNTRIMMED_BYTES = 1 << 16


class Replies:
    """The results of the calls of one client."""

    def __init__(self, settings: RedisSettings, job: str, client: str) -> None:
        self.key = keys.reply_key(job, client)
        self._link = Link(settings)
        self._last = b"0-0"
        self._touched_s = float("-inf")
        self._untrimmed = 0
        self._results: dict[str, Result | None] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._followers = 0
        self._reading = False

    def expect(self, uris: list[str]) -> None:
        """Say that results of these records will be waited for; call it before they are enqueued.

        Raises:
            InvalidValue: one of them is under way already.
            QueueFull: Redis has no memory for a reply stream.
            ConnectionLost: Redis cannot be reached.
        """
        with self._lock:
            if time.monotonic() - self._touched_s > _KEPT_S and not self._reading:
                self._open()
            for uri in uris:
                if uri in self._results:
                    raise InvalidValue(f"two records of uri {uri!r} are under way at once")
                self._results[uri] = None

    def forget(self, uri: str) -> None:
        """Nobody waits for this one any more."""
        self._results.pop(uri, None)

    def ask(self, uri: str, enqueue: Sequence[Argument], deadline_s: float) -> Result | None:
        """Enqueue a record that is expected and wait for its result, in one packet: a lone call costs one trip.

        Args:
            uri: of the record.
            enqueue: the command; its reply names the entry.
            deadline_s: on the monotonic clock.

        Returns:
            The result, or None where another call is reading, or Redis has not taken the record: nothing has been enqueued.

        Raises:
            ResultTimeout: it did not come in time.
            ConnectionLost: Redis went away.
        """
        with self._lock:
            if self._reading:
                return None
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
                        raise ResultTimeout(f"no result of {uri!r} in time; is a node of this job running?")
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
                    raise ResultTimeout("no result in time; is a node of this job running?")
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

    def _open(self) -> None:
        try:
            # The cheapest way to make an empty stream. Results go only to a stream that exists (NOMKSTREAM).
            self._link.call("XGROUP", "CREATE", self.key, "client", "$", "MKSTREAM")
        except redis.ResponseError as error:
            if is_out_of_memory(error):
                raise memory_full(self.key, error, 0) from error
            if not str(error).startswith("BUSYGROUP"):
                raise
        self._link.call("PEXPIRE", self.key, REPLY_LIFE_MS)
        self._touched_s = time.monotonic()

    def _read_for_all(self, block_s: float, enqueue: Sequence[Argument] = ()) -> bool:
        """Be the one who reads; called with the lock, which is free while Redis makes us wait.

        Returns:
            Whether Redis took the record of `enqueue`.
        """
        self._reading = True
        self._lock.release()
        try:
            arrived = self._read(block_s, enqueue)
        except ConnectionLost:
            self._touched_s = float("-inf")  # a Redis that has come back may not have the stream
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

    def _read(self, block_s: float, enqueue: Sequence[Argument]) -> list[Result] | None:
        """The results that have come, or None when Redis has not taken the record of `enqueue`."""
        commands: list[Sequence[Argument]] = []
        due = self._due()
        if due:
            # Keep the stream alive, and delete from it what has been read.
            commands += (("PEXPIRE", self.key, REPLY_LIFE_MS), ("XTRIM", self.key, "MINID", next_id(self._last)))
        if enqueue:
            commands.append(enqueue)
        block = ("BLOCK", max(1, round(block_s * 1000))) if block_s > 0 else ()
        self._link.set_patience(_PATIENCE_S + math.ceil(max(block_s, 0)))
        self._link.send(*commands, ("XREAD", "COUNT", REPLIES_AT_ONCE, *block, "STREAMS", self.key, self._last))
        try:
            replies = [self._link.read() for _ in commands]
        except redis.ResponseError:
            self._link.close()  # replies to the other commands are still to come
            if not enqueue:
                raise
            return None
        if enqueue and not replies[-1]:
            self._link.close()  # the blocking read has been sent already, and there will be nothing to read
            return None
        entries = read_replies(self._link.read())
        if due and not replies[0]:
            self._open()  # it was gone: flushed, or lost with a master
        if entries:
            self._last = entries[-1][0]
        self._untrimmed += sum(sum(map(len, fields)) for _, fields in entries)
        return [reply_of(fields) for _, fields in entries]

    def _due(self) -> bool:
        now_s = time.monotonic()
        if self._untrimmed < _UNTRIMMED_BYTES and now_s - self._touched_s < _KEPT_S / 2:
            return False
        self._untrimmed, self._touched_s = 0, now_s
        return True
