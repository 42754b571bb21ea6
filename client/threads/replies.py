"""One reply stream for all waiting calls of a client.

The first waiting thread becomes the reader: it sends the blocking read and hands results to the other waiters. A waiter sleeps
until its result is there, or until the reader has ended and a new reader is needed. No extra thread is needed, and a lone call
has no waiter to wake.
"""

import math
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost, InvalidValue, QueueFull, RedisRefused
from cluster_serving.client.protocol.absence import LOST, Inquiry
from cluster_serving.client.protocol.admission import TAKEN, Admission, Send
from cluster_serving.client.protocol.reply_stream import BLOCK_S, ReplyStream
from cluster_serving.client.protocol.resp import Command
from cluster_serving.client.protocol.retrying import connect_s, restated
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.result import Result

_PATIENCE_S = 1.0  # added to the blocking time of a read, before Redis is taken for lost


class Replies:
    """Results for the calls of one client.

    Args:
        settings: address of Redis, and login.
        admission: admission into the job's stream.
        client: name of the client.
        patience_s: seconds to retry, of the calls.

    Attributes:
        reply: field of a record that sends the record's result to this client.
    """

    def __init__(self, settings: RedisSettings, admission: Admission, client: str, patience_s: float) -> None:
        self._admission = admission
        self._patience_s = patience_s
        self._inquiry = Inquiry(admission.job, settings.describe())
        self._stream = ReplyStream(keys.reply_key(admission.job, client))
        self.reply = self._stream.reply
        self._link = Link(settings)
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
                self._stream.settle()
            for uri in uris:
                if uri in self._results:
                    raise InvalidValue(f"two records of uri {uri!r} are under way at once")
                self._results[uri] = None

    def have_stream(self, left_s: float) -> None:
        """Make sure of the stream, for a call with `left_s` seconds of patience left.

        Call `have_stream` before enqueueing, because results go only to an existing stream.

        Raises:
            QueueFull: Redis has no memory for the stream.
            ConnectionLost: Redis cannot be reached, or went away.
            RedisRefused: the key of the stream holds another type.
        """
        with self._lock:
            now_s = time.monotonic()
            if not self._reading and self._stream.is_unsure(now_s):
                self._connect(left_s)
                self._make(now_s)

    def outlive(self, pause_s: float) -> None:
        """Let the stream outlive pauses of the caller of up to `pause_s` seconds."""
        self._stream.outlive(pause_s)

    def forget(self, uri: str) -> None:
        """Remove a record that no call waits for any more."""
        self._results.pop(uri, None)

    def ask(self, uri: str, send: Send) -> Result | None:
        """Send an expected record and wait for the result, in one packet, so that a lone call costs one trip.

        Args:
            uri: uri of the record.
            send: the record. The deadline of the record is the deadline of the call.

        Returns:
            The result, or None if Redis has not taken the record: another call is reading, or the state of `send` says why.

        Raises:
            ResultTimeout: the result did not come in time.
            ConnectionLost: Redis went away after it took the record.
            RedisRefused: the key of the reply stream holds another type.
        """
        with self._lock:
            if self._reading or not self._admission.room:
                return None
            self._read_for_all(min(send.until_s - time.monotonic(), BLOCK_S), send)
        return self.wait(uri, send.until_s, send.ids) if send.state is TAKEN else None

    def wait(self, uri: str, deadline_s: float, entries: Collection[bytes] = ()) -> Result:
        """Wait for the result of an expected record and return the result.

        Args:
            uri: uri of the record.
            deadline_s: deadline on the monotonic clock.
            entries: ids of the entries of the record, and of others, if known: tell whether Redis has lost the record.

        Raises:
            ResultTimeout: the result did not come in time, or cannot come: no node has ever served the job, or Redis has lost the
                record.
            ConnectionLost: Redis went away.
        """
        result = self._results[uri]
        if result is None:
            reason = ""
            with self._lock:
                while (result := self._results[uri]) is None:
                    left_s = deadline_s - time.monotonic()
                    if self._reading and left_s > 0:
                        self._followers += 1
                        self._changed.wait(left_s)
                        self._followers -= 1
                        continue
                    if left_s > 0 and self._stream.is_silent and (reason := self._hopeless(entries)):
                        left_s = deadline_s = -math.inf  # after a last look
                    # Read after the deadline too, because the result may have come while no thread was reading.
                    if not self._reading:
                        self._read_for_all(min(left_s, BLOCK_S))
                        if self._results[uri] is not None or (left_s <= 0 and self._stream.more):
                            continue
                    if left_s <= 0:
                        self.forget(uri)
                        raise self._stream.no_result(f"of {uri!r} in time", reason or self._reason())
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

    def arrived(self, deadline_s: float, entries: Collection[bytes]) -> list[Result]:
        """Return all available results, and wait for at least one. Not for use beside calls of `wait`.

        Args:
            deadline_s: deadline on the monotonic clock.
            entries: ids of the records' entries, as for `wait`.

        Raises:
            ResultTimeout: no result came in time, or can come: no node has ever served the job, or Redis has lost all records.
            ConnectionLost: Redis went away.
        """
        reason = ""
        with self._lock:
            while True:
                found = [result for result in self._results.values() if result is not None]
                if found:
                    for result in found:
                        self.forget(result.uri)
                    return found
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise self._stream.no_result("in time", reason or self._reason())
                self._read_for_all(min(left_s, BLOCK_S))
                if self._stream.is_silent and (reason := self._hopeless(entries)):
                    deadline_s = -math.inf  # after a last look

    def close(self) -> None:
        """Delete the stream and close the connection. A waiting call gets `ConnectionLost`."""
        with self._lock:
            self._stream.doubt()
            # While another thread reads, the connection belongs to the other thread. The stream then expires by itself.
            if self._link.connected and not self._reading:
                with suppress(ConnectionLost, RedisRefused):
                    self._link.call("DEL", self._stream.key)
            self._link.close()

    def _read_for_all(self, block_s: float, send: Send | None = None) -> None:
        """Read for all waiting calls. Called with the lock, which is released while Redis blocks the read.

        An error before Redis has taken the records of `send` becomes an error of the send.
        """
        self._reading = True
        self._lock.release()
        results: list[Result] = []
        try:
            results = self._read(block_s, send)
        except (QueueFull, ConnectionLost) as error:
            if send is not None and send.state is not TAKEN:
                send.fail(error)
            elif isinstance(error, ConnectionLost):
                raise restated(error, ConnectionLost) from None  # the awaited records have been sent
            else:
                raise
        except BaseException:
            self._link.close()  # interrupted: a reply is still to come
            raise
        finally:
            self._lock.acquire()
            self._reading = False
            if self._followers:
                self._changed.notify_all()
        for result in results:
            if result.uri in self._results:
                self._results[result.uri] = result

    def _read(self, block_s: float, send: Send | None) -> list[Result]:
        """Return the results that have come: none if Redis has not taken the records of `send`."""
        link, stream = self._link, self._stream
        self._connect(self._patience_s)
        link.set_patience(_PATIENCE_S + math.ceil(max(block_s, 0)))
        now_s = time.monotonic()
        if stream.is_unsure(now_s):
            self._make(now_s)
        read = stream.read(now_s, block_s)
        try:
            if send is None:
                replies = link.exchange(*read)
            else:
                enqueue = self._admission.next([send], now_s)
                link.send(enqueue, *read)
                self._admission.receive([send], link.read_all(enqueue.replies))
                if send.state is not TAKEN:
                    link.close()  # the blocking read has been sent already, and no result will come
                    return []
                replies = link.read_all(len(read))
            return stream.results(replies)
        except RedisRefused as refusal:
            link.raise_for(refusal)

    def _hopeless(self, entries: Collection[bytes]) -> str:
        """Return the reason that no result can come, or an empty text. Called with the lock."""
        with suppress(ConnectionLost):  # the next read finds out
            hope = self._inquiry.read_hope(self._ask(self._inquiry.for_hope(entries)), entries)
            if entries and hope.lost.issuperset(entries):
                return LOST
            if not (hope.served or self._stream.answered):
                return self._reason()
        return ""

    def _reason(self) -> str:
        """Return the reason for a result that has not come. Called with the lock."""
        if not self._reading:
            with suppress(ConnectionLost):
                return self._inquiry.read_reason(self._ask(self._inquiry.for_reason()))
        return self._inquiry.unanswered

    def _ask(self, commands: Sequence[Command]) -> list[Any]:
        self._connect(_PATIENCE_S)
        self._link.set_patience(_PATIENCE_S)
        return self._link.exchange(*commands)

    def _connect(self, left_s: float) -> None:
        """Connect, unless a connection is open. A new connection may reach another master, with other entries."""
        self._link.drop_if_stale()
        if not self._link.connected:
            self._stream.doubt()
            self._link.connect(connect_s(left_s))

    def _make(self, now_s: float) -> None:
        try:
            self._stream.made(self._link.exchange(*self._stream.make()), now_s)
        except RedisRefused as refusal:
            self._link.raise_for(refusal)
