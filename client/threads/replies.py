"""One reply stream for all waiting calls of a client, by leader and followers.

The first waiting call becomes the leader: it sends the blocking read and hands results to the followers. A follower sleeps until
the leader has ended, then looks for its result or becomes the leader. No extra thread is needed, and a lone call has no follower
to wake.

A signal handler may raise an exception between any two instructions. So the leader gives up its part by the first instruction of
`finally`, followers look again after `BLOCK_S` at the latest, and results that were read but not handed over are read again.
"""

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost, InvalidValue, QueueFull
from cluster_serving.client.protocol.absence import LOST, Inquiry
from cluster_serving.client.protocol.admission import TAKEN, Admission, Send
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.reply_stream import BLOCK_S, ReplyStream
from cluster_serving.client.protocol.resp import Command, abandoned
from cluster_serving.client.protocol.retrying import connect_s, restated
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.result import Result

_LEAST_REPLY_S = 1.0  # wait at least 1 s for Redis, even if the deadline of the call is nearer
_GONE: Final = Result("", {})  # in the place of the result of a record that is not expected any more


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
        self._lock = threading.RLock()  # a signal handler of the thread that holds the lock may use the queue
        self._leader: object = None
        self._followers: list[threading.Lock] = []
        self._handed_over = True
        weakref.finalize(self, _leave, self._link, self._stream.key, os.getpid())

    def expect(self, uris: list[str], pause_s: float = 0.0) -> None:
        """Register records that a call will wait for. Call `expect` before the records are enqueued.

        Args:
            uris: uris of the records.
            pause_s: longest pause of the caller in seconds. The stream outlives the pause.

        Raises:
            InvalidValue: a record with the same uri is already under way.
        """
        with self._lock:
            if not self._results:
                self._stream.settle()
            self._stream.outlive(pause_s)
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
        while self._stream.is_unsure(time.monotonic()) and not self._lead(self._have_stream, left_s):
            self._follow(BLOCK_S)

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
            ConnectionLost: Redis went away after it took the record, or the queue was closed.
            RedisRefused: the key of the reply stream holds another type.
        """
        if self._admission.room:
            self._read_for_all(send.until_s - time.monotonic(), send=send)
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
            ConnectionLost: Redis went away, or the queue was closed.
        """
        reason = ""
        while (result := self._results.get(uri, _GONE)) is None:
            left_s = deadline_s - time.monotonic()
            if left_s > 0 and self._follow(left_s):
                continue
            if left_s > 0 and self._stream.is_silent and (reason := self._hopeless(entries, left_s)):
                left_s = deadline_s = -math.inf  # after a last look
            # Read after the deadline too, because the result may have come while no call was reading.
            has_read = self._read_for_all(deadline_s - time.monotonic())
            if left_s <= 0 and self._results.get(uri, _GONE) is None and not (has_read and self._stream.more):
                self.forget(uri)
                raise self._stream.no_result(f"of {uri!r} in time", reason or self._reason())
        if result is _GONE:
            raise abandoned()
        self.forget(uri)
        return result

    def has(self, uri: str) -> bool:
        """Return whether `wait` for a record returns or raises at once."""
        return self._results.get(uri, _GONE) is not None

    def look(self) -> None:
        """Read the results that have come, without waiting."""
        self._read_for_all(math.inf, block_s=0)

    def arrived(self, deadline_s: float, entries: Collection[bytes]) -> list[Result]:
        """Return all available results, and wait for at least one. Not for use beside calls of `wait`.

        Args:
            deadline_s: deadline on the monotonic clock.
            entries: ids of the records' entries, as for `wait`.

        Raises:
            ResultTimeout: no result came in time, or can come: no node has ever served the job, or Redis has lost all records.
            ConnectionLost: Redis went away, or the queue was closed.
        """
        reason = ""
        while True:
            found = [result for result in self._results.values() if result is not None]
            if found:
                for result in found:
                    self.forget(result.uri)
                return found
            if not self._results:
                raise abandoned()
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise self._stream.no_result("in time", reason or self._reason())
            self._read_for_all(left_s)
            if self._stream.is_silent and (reason := self._hopeless(entries, left_s)):
                # A result may have come before Redis was asked.
                self._read_for_all(deadline_s - time.monotonic(), block_s=0)
                deadline_s = -math.inf

    def close(self) -> None:
        """Delete the stream and close the connection. Each waiting call gets `ConnectionLost`."""
        if not self._lead(self._end):  # else the stream stays, and expires by itself
            self._results = {}
            self._link.shut_down()

    def _lead(self, work: Callable[..., object], *arguments: Any) -> bool:
        """Do work on the connection, unless another call is the leader. Return whether the work is done."""
        me = object()
        try:
            with self._lock:
                if self._leader is not None:
                    return False
                self._leader = me
            work(*arguments)
            return True
        finally:
            if self._leader is me:
                self._leader = None
                with self._lock:
                    followers, self._followers = self._followers, []
                for follower in followers:
                    follower.release()

    def _follow(self, seconds: float) -> bool:
        """Wait until the leader has ended, or for `BLOCK_S`. Return False at once if there is no leader."""
        with self._lock:
            if self._leader is None:
                return False
            asleep = threading.Lock()
            asleep.acquire()
            self._followers.append(asleep)
        asleep.acquire(timeout=min(seconds, BLOCK_S))
        return True

    def _read_for_all(self, left_s: float, block_s: float = BLOCK_S, send: Send | None = None) -> bool:
        """Read for all waiting calls, unless another call is the leader. Return whether this call has read.

        The call has `left_s` seconds left, and waits up to `block_s` of them for a result. An error before Redis has taken the
        records of `send` becomes an error of the send.
        """
        try:
            return self._lead(self._read, left_s, min(max(left_s, 0), block_s), send)
        except (QueueFull, ConnectionLost) as error:
            if send is not None and send.state is not TAKEN:
                send.fail(error)
                return True
            if isinstance(error, ConnectionLost):
                raise restated(error, ConnectionLost) from None  # the awaited records have been sent
            raise

    def _read(self, left_s: float, block_s: float, send: Send | None) -> None:
        """Hand over the results that have come: none if Redis has not taken the records of `send`."""
        link, stream = self._link, self._stream
        self._be_patient(left_s, block_s)
        now_s = self._make_sure(self._patience_s)
        read = stream.read(now_s, block_s)
        self._handed_over = False
        try:
            if send is None:
                replies = link.exchange(*read)
            else:
                enqueue = self._admission.next([send], now_s)
                link.send(enqueue, *read)
                self._admission.receive([send], link.read_all(enqueue.replies))
                if send.state is not TAKEN:
                    link.close()  # the blocking read has been sent already, and no result will come
                    return
                replies = link.read_all(len(read))
            results = stream.results(replies)
        except RedisRefused as refusal:
            link.raise_for(refusal)
        for result in results:
            if result.uri in self._results:
                self._results[result.uri] = result
        self._handed_over = True

    def _hopeless(self, entries: Collection[bytes], left_s: float) -> str:
        """Return the reason that no result can come, or an empty text. The call has `left_s` seconds left."""
        if replies := self._ask(self._inquiry.for_hope(entries if self._stream.doubted else ()), left_s):
            hope = self._inquiry.read_hope(replies)
            if entries and hope.lost.issuperset(entries):
                return LOST
            if not (hope.served or self._stream.answered):
                return self._reason()
        return ""

    def _reason(self) -> str:
        """Return the reason for a result that has not come."""
        replies = self._ask(self._inquiry.for_reason(), 0)
        return self._inquiry.read_reason(replies) if replies else self._inquiry.unanswered

    def _ask(self, commands: Sequence[Command], left_s: float) -> list[Any]:
        """Return the replies to commands, of a call with `left_s` seconds left.

        There are none if another call is the leader, or Redis is away.
        """
        replies: list[Any] = []

        def ask() -> None:
            self._be_patient(left_s)
            self._connect(left_s)
            replies.extend(self._link.exchange(*commands))

        with suppress(ConnectionLost):  # the next read finds out
            self._lead(ask)
        return replies

    def _be_patient(self, left_s: float, block_s: float = 0) -> None:
        """Give a reply the settings' timeout after `block_s`. A call with `left_s` seconds left ends in time, or shortly after."""
        reply_s = min(self._link.timeout_s, max(left_s - block_s, _LEAST_REPLY_S))
        self._link.set_patience(math.ceil(block_s + reply_s))  # seldom another number, which costs two system calls

    def _connect(self, left_s: float) -> None:
        """Connect, unless a connection is open."""
        self._link.drop_if_stale()
        if not (self._link.connected and self._handed_over):
            if self._link.connections:
                # A new connection may reach another master, with other entries. An interrupted read has left results behind.
                self._stream.doubt()
            self._link.connect(connect_s(left_s))

    def _have_stream(self, left_s: float) -> None:
        self._be_patient(left_s)
        self._make_sure(left_s)

    def _make_sure(self, left_s: float) -> float:
        """Make sure of the connection and the stream, and return the time of that."""
        self._connect(left_s)
        now_s = time.monotonic()
        if self._stream.is_unsure(now_s):
            try:
                self._stream.made(self._link.exchange(*self._stream.make()), now_s)
            except RedisRefused as refusal:
                self._link.raise_for(refusal)
        return now_s

    def _end(self) -> None:
        # In this order, because a call expects its records before it makes sure of the stream: either the records are forgotten
        # here, or the call finds the stream in doubt.
        self._stream.doubt()
        self._results = {}
        if self._link.connected:
            with suppress(ConnectionLost, RedisRefused):
                self._link.call("DEL", self._stream.key)
        self._link.close()


def _leave(link: Link, key: str, pid: int) -> None:
    """Have the stream deleted, without waiting: the program ends, or has dropped the queue, and has not closed it."""
    if os.getpid() == pid and link.connected and not link.due:  # the child of a fork drops the queue of its parent
        with suppress(ConnectionLost):
            link.send(("DEL", key))
