"""Admission of records into a job's stream, with retries while Redis has certainly not taken the records."""

import math
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple

from cluster_serving.client.errors import ConnectionLost, QueueFull, Unavailable
from cluster_serving.client.protocol.admission import (
    HELD,
    SENT,
    Admission,
    Records,
    Send,
    admitted,
    check,
    chunks,
    transaction,
)
from cluster_serving.client.protocol.payload import Questions
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.resp import Argument, Script, abandoned
from cluster_serving.client.protocol.retrying import connect_s, restated
from cluster_serving.client.threads.link import Link
from cluster_serving.client.threads.replies import Replies

_LEAST_REPLY_S = 0.1  # wait at least 0.1 s for Redis, even if the record's deadline is nearer


class _UnderWay(NamedTuple):
    """A send whose replies have not been read, and the number of the link's connection."""

    send: Send
    connection: int
    replies: int
    patience_s: float


class ThreadAdmission:
    """`protocol.admission.Admission` over one link. Safe for use by several threads.

    Args:
        link: connection, used by nothing else.
        admission: admission into one job's stream.
        patience_s: seconds to retry.

    Attributes:
        closings: number of calls of `close`. A call that has seen the number change makes no further attempt.

    Raises:
        InvalidValue: from each method: a record has too many fields, or a field is too long for Redis.
        QueueFull: from each method: there was no room. `accepted` is the number of given records that were enqueued, in order.
        ConnectionLost: from each method. Unless `unsent` is true, more than `accepted` records may have been enqueued.
        RedisRefused: from each method, if a retry is of no use.
    """

    def __init__(self, link: Link, admission: Admission, patience_s: float) -> None:
        self._link = link
        self._admission = admission
        self._patience_s = patience_s
        self._lock = threading.RLock()  # a signal handler of the thread that holds the lock may use the queue
        self._under_way: deque[_UnderWay] = deque()
        self.closings = 0

    def call(self, *command: Argument) -> Any:
        """Send a command over the same connection and return its reply, as `Link.call` does."""
        with self._lock:
            return self._idle_link().call(*command)

    def run(self, script: Script, names: Sequence[Argument], arguments: Sequence[Argument]) -> Any:
        """Run a script over the same connection, as `Link.run` does."""
        with self._lock:
            return self._idle_link().run(script, names, arguments)

    def answer(self, questions: Questions, within_s: float) -> None:
        """Answer questions over the same connection, each within some seconds."""
        with self._lock, closing(questions):
            link = self._idle_link()
            link.connect(connect_s(min(within_s, self._patience_s)))
            link.set_patience(min(link.timeout_s, max(within_s, _LEAST_REPLY_S)))
            command = next(questions)
            with suppress(StopIteration):
                while True:
                    command = questions.send(link.call(*command))

    def close(self) -> None:
        """Close the connection. A call of another thread that uses the connection, or retries, gets `ConnectionLost`."""
        self.closings += 1
        self._link.shut_down()

    def put_all(
        self, records: Iterable[Fields], life_s: float, replies: Replies | None = None
    ) -> Generator[list[bytes]]:
        """Enqueue records in chunks and yield the ids of each chunk's entries.

        Args:
            records: the fields of each record.
            life_s: seconds within which a node must begin the records.
            replies: destination of the results, if a caller waits for them.
        """
        accepted, closings = 0, self.closings
        common = () if replies is None else replies.reply
        for chunk in chunks(records):
            send = Send(chunk, time.monotonic() + life_s, common, accepted, durable=replies is None)
            self.complete(send, replies, closings)
            accepted += len(send.ids)
            yield send.ids

    def put(self, fields: Fields, life_s: float) -> bytes:
        """Enqueue a record that a node must begin within `life_s`, and return the record's id."""
        check(fields)
        send = Send([fields], time.monotonic() + life_s, durable=True)
        self.complete(send)
        return send.ids[0]

    def send(self, batch: Sequence[Fields], life_s: float, replies: Replies) -> Send:
        """Send a batch of `chunks` without waiting for the replies. `complete` does the waiting. See `put_all`.

        If there is no connection yet, or the last attempt found no room, nothing is sent, and `complete` enqueues all records.
        """
        send = Send(batch, time.monotonic() + life_s, replies.reply)
        if not self._link.connected:
            return send
        try:
            replies.have_stream(self._patience_s)
            with self._lock:
                self._settle()
                while self._under_way and self._link.has_news:
                    self._hear()
                if not self._under_way:
                    self._link.drop_if_stale()
                if self._link.connected and self._admission.room:
                    packet = self._admission.next([send], time.monotonic())
                    self._link.send(packet)
                    patience_s = self._patience_of(send)
                    self._under_way.append(_UnderWay(send, self._link.connections, packet.replies, patience_s))
        except (QueueFull, ConnectionLost) as error:
            send.fail(error)
        return send

    def complete(self, send: Send, replies: Replies | None = None, closings: int | None = None) -> None:
        """Make sure that all records of a send are enqueued. Retry with the records that Redis has not taken.

        `closings`: the attribute when the call began, if the call began earlier.
        """
        if closings is None:
            closings = self.closings
        if send.state is SENT:
            with self._lock:
                self._settle()
                while send.state is SENT and self._under_way:
                    self._hear()
            if send.state is SENT:
                send.fail(abandoned())  # sent before a fork, by the parent process
        give_up_s = min(min(send.begun_s, time.monotonic()) + self._patience_s, send.until_s)
        while send.state is HELD:
            if send.error is not None:
                pause_s = send.pause_s(time.monotonic(), give_up_s)
                if send.state is not HELD:
                    break
                time.sleep(pause_s)
            left_s = give_up_s - time.monotonic()
            try:
                self._go_on(closings)
                if replies is not None:
                    replies.have_stream(left_s)
                with self._lock:
                    link = self._idle_link()
                    self._go_on(closings)
                    link.connect(connect_s(left_s))
                    if self.closings != closings:
                        link.close()  # `close` did not see the new connection
                        continue
                    link.set_patience(self._patience_of(send))
                    packet = self._admission.next([send], time.monotonic())
                    try:
                        self._admission.receive([send], link.exchange(packet))
                    except RedisRefused as refusal:
                        link.raise_for(refusal)
            except (QueueFull, ConnectionLost) as error:
                send.fail(error)
                if self.closings != closings:
                    give_up_s = -math.inf
        if send.error is not None:
            raise send.error

    def _go_on(self, closings: int) -> None:
        """Raise `Unavailable` if the link was closed since there were so many closings."""
        if self.closings != closings:
            raise restated(abandoned(), Unavailable)

    def _patience_of(self, send: Send) -> float:
        """Return the seconds to wait for the reply to a send."""
        return min(self._link.timeout_s, max(send.until_s - time.monotonic(), _LEAST_REPLY_S))

    def _idle_link(self) -> Link:
        """Return the link with no reply under way. Called with the lock."""
        self._settle()
        while self._under_way:
            self._hear()
        self._link.drop_if_stale()
        return self._link

    def _settle(self) -> None:
        """Close the connection if an interrupted call has left other replies than those under way. Called with the lock."""
        due = sum(each.replies for each in self._under_way if each.connection == self._link.connections)
        if self._link.due != due:
            self._link.close()

    def _hear(self) -> None:
        """Read the replies to the send that has been under way for longest. Called with the lock."""
        send, connection, replies, patience_s = self._under_way[0]
        try:
            if self._link.connected and self._link.connections == connection:
                self._link.set_patience(patience_s)
                self._admission.receive([send], self._link.read_all(replies))
        except ConnectionLost as error:
            send.fail(error)
        except RedisRefused:
            pass  # Redis cannot serve now: the send is held
        finally:
            if send.state is SENT:
                send.fail(ConnectionLost("the connection to Redis was closed while records were on their way"))
            self._under_way.popleft()


def enqueue(link: Link, job: str, records: Records) -> list[bytes]:
    """Enqueue records without retries. Return the ids of the records that had room.

    Raises:
        ConnectionLost: Redis cannot be reached, cannot serve, or went away.
        RedisRefused: Redis will not take the records.
    """
    try:
        return admitted(job, link.exchange(transaction(job, records)))[0]
    except RedisRefused as refusal:
        link.raise_for(refusal)
