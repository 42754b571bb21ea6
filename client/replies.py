"""One reply stream for all calls of a client that wait for their results.

Whoever waits reads: the first call to wait sends the blocking read and deals out what arrives, the others sleep until it is
their turn or their result is there. No thread is needed, and a lone call has no one to wake.
"""

import threading
import time

import redis

from cluster_serving.client import keys
from cluster_serving.client.commands import REPLY_LIFE_MS, next_id, read_replies, reply_of
from cluster_serving.client.connection import Link, RedisSettings
from cluster_serving.client.errors import ResultTimeout
from cluster_serving.client.wire import Result

_BLOCK_S = 10.0
_MOST_AT_ONCE = 1024


class Replies:
    """The results of the calls of one client."""

    def __init__(self, settings: RedisSettings, job: str, client: str) -> None:
        self.key = keys.reply_key(job, client)
        self._link = Link(settings)
        self._patience_s = settings.timeout_s
        self._last = b"0-0"
        self._touched_s = float("-inf")
        self._results: dict[str, Result | None] = {}
        self._changed = threading.Condition()
        self._reading = False

    def expect(self, uris: list[str]) -> None:
        """Say that results of these records will be waited for; call it before they are enqueued."""
        with self._changed:
            if time.monotonic() - self._touched_s > REPLY_LIFE_MS / 3000 and not self._reading:
                self._open()
            for uri in uris:
                self._results[uri] = None

    def forget(self, uri: str) -> None:
        """Nobody waits for this one any more."""
        self._results.pop(uri, None)

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
            with self._changed:
                while (result := self._results[uri]) is None:
                    left_s = deadline_s - time.monotonic()
                    if left_s <= 0:
                        self.forget(uri)
                        raise ResultTimeout(f"no result of {uri!r} in time; is a node of this job running?")
                    if self._reading:
                        self._changed.wait(left_s)
                    else:
                        self._read_for_all(min(left_s, _BLOCK_S))
        self.forget(uri)
        return result

    def arrived(self, deadline_s: float) -> list[Result]:
        """Every result that is there and not waited for by `wait`; at least one, unless the deadline passes."""
        with self._changed:
            while True:
                found = [result for result in self._results.values() if result is not None]
                left_s = deadline_s - time.monotonic()
                if found or left_s <= 0:
                    for result in found:
                        self.forget(result.uri)
                    return found
                self._read_for_all(min(left_s, _BLOCK_S))

    def close(self) -> None:
        """Delete the stream and close the connection."""
        if self._link.connected:
            self._link.call("DEL", self.key)
        self._link.close()

    def _open(self) -> None:
        try:
            # The cheapest way to make an empty stream. Results go only to a stream that exists (NOMKSTREAM).
            self._link.call("XGROUP", "CREATE", self.key, "client", "$", "MKSTREAM")
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        self._link.call("PEXPIRE", self.key, REPLY_LIFE_MS)
        self._touched_s = time.monotonic()

    def _read_for_all(self, block_s: float) -> None:
        """Be the one who reads; called with the lock, which is free while Redis makes us wait."""
        self._reading = True
        self._changed.release()
        try:
            arrived = self._read(block_s)
        finally:
            self._changed.acquire()
            self._reading = False
            self._changed.notify_all()
        for result in arrived:
            if result.uri in self._results:
                self._results[result.uri] = result

    def _read(self, block_s: float) -> list[Result]:
        block_ms = max(1, round(block_s * 1000))
        # What was read last time is deleted in the same packet that asks for more.
        self._link.send(
            ("PEXPIRE", self.key, REPLY_LIFE_MS),
            ("XTRIM", self.key, "MINID", next_id(self._last)),
            ("XREAD", "COUNT", _MOST_AT_ONCE, "BLOCK", block_ms, "STREAMS", self.key, self._last),
        )
        self._link.read()
        self._link.read()
        entries = read_replies(self._link.read(block_s + self._patience_s))
        self._touched_s = time.monotonic()
        if entries:
            self._last = entries[-1][0]
        return [reply_of(fields) for _, fields in entries]
