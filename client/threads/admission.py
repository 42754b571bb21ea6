"""Admission of records into a job's stream, with retries while Redis has certainly not taken the records."""

import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost, QueueFull, RedisRefused
from cluster_serving.client.protocol.admission import (
    Records,
    admitted,
    answered,
    check,
    chunks,
    deadline,
    question,
    refused,
    transaction,
)
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.resp import cannot_serve, executed
from cluster_serving.client.protocol.retrying import Attempts
from cluster_serving.client.threads.link import Link
from cluster_serving.client.threads.replies import Replies

_LEAST_REPLY_S = 0.1  # wait at least 0.1 s for Redis, even if the record's deadline is nearer


class Sent:
    """Records that have been sent, with or without a reply from Redis so far."""

    __slots__ = ("batch", "connection", "error", "patience_s", "replies", "taken", "until_s", "waits_for")

    def __init__(self, batch: Sequence[Fields], until_s: float, replies: Replies) -> None:
        self.batch = batch
        self.until_s = until_s
        self.replies = replies
        self.connection = self.waits_for = 0  # number of the link's connection, and number of replies to wait for
        self.patience_s = 0.0
        self.taken = 0  # number of records that Redis took, from the first on
        self.error: Exception | None = None


class Admission:
    """Admission into one job's stream. Safe for use by several threads.

    Args:
        link: connection. Other users of the connection borrow it by `link()`.
        job: name of the job.
        patience_s: seconds to retry.

    Attributes:
        full: True if the last attempt found no room. The next attempt then asks for room before it sends records.

    Raises:
        InvalidValue: from each method: a record has too many fields.
        QueueFull: from each method: there was no room. `accepted` is the number of given records that were enqueued, in order.
        ConnectionLost: from each method. Unless `unsent` is true, more than `accepted` records may have been enqueued.
        RedisRefused: from each method, if a retry is of no use.
    """

    def __init__(self, link: Link, job: str, patience_s: float) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._job = job
        self._patience_s = patience_s
        self._under_way: deque[Sent] = deque()
        self.full = False

    @contextmanager
    def link(self) -> Generator[Link]:
        """Lend the link to one thread, with no reply under way."""
        with self._lock:
            while self._under_way:
                self._hear()
            yield self._link

    def put_all(self, records: Iterable[Fields], life_s: float, replies: Replies | None = None) -> int:
        """Enqueue records in chunks and return the number of records. The arguments are as in `put`."""
        accepted = 0
        for chunk in chunks(records):
            try:
                accepted += len(self.put(chunk, life_s, replies))
            except (QueueFull, ConnectionLost) as error:
                error.accepted += accepted
                raise
        return accepted

    def put(self, batch: Sequence[Fields], life_s: float, replies: Replies | None = None) -> list[str]:
        """Enqueue all records of a batch and return their ids.

        Args:
            batch: the fields of each record.
            life_s: seconds within which a node must begin the records.
            replies: destination of the results, if a caller waits for them.
        """
        for fields in batch:
            check(fields)
        ids: list[str] = []
        begun_s = time.monotonic()
        until_s = begun_s + life_s
        attempts = Attempts(min(begun_s + self._patience_s, until_s))
        while len(ids) < len(batch):
            try:
                if replies is not None:
                    replies.have_stream()
                taken, full = self._put_once(batch[len(ids) :], until_s - time.monotonic(), replies)
                ids += [entry_id.decode() for entry_id in taken]
                if taken:
                    attempts.progress()
                if full is not None:
                    raise full
            except (QueueFull, ConnectionLost) as error:
                error.accepted = len(ids)
                time.sleep(attempts.pause_s(error, time.monotonic()))
        return ids

    def send(self, batch: Sequence[Fields], life_s: float, replies: Replies) -> Sent:
        """Send records without waiting for the replies. `complete` does the waiting. The arguments are as in `put`.

        If there is no connection yet, or the last attempt found no room, nothing is sent, and `complete` enqueues all records.
        """
        for fields in batch:
            check(fields)
        sent = Sent(batch, time.monotonic() + life_s, replies)
        try:
            replies.have_stream()
        except (QueueFull, ConnectionLost):
            return sent
        with self._lock:
            while self._under_way and self._link.has_news:
                self._hear()
            if not self._under_way:
                self._link.drop_if_stale()
            if self._link.connected and not self.full:
                packet = transaction(self._job, _records(batch, life_s, replies))
                sent.connection, sent.waits_for = self._link.connections, packet.replies
                sent.patience_s = self._patience_of(life_s)
                sent.error = ConnectionLost("the connection to Redis was closed while records were on their way")
                self._under_way.append(sent)
                try:
                    self._link.send(packet)
                except ConnectionLost as error:
                    self._under_way.pop()
                    sent.error = error
        return sent

    def complete(self, sent: Sent) -> None:
        """Make sure that all sent records are enqueued. Retry with the records that Redis has not taken."""
        with self._lock:
            while sent in self._under_way:
                self._hear()
        if sent.error is not None:
            raise sent.error
        try:
            self.put(sent.batch[sent.taken :], sent.until_s - time.monotonic(), sent.replies)
        except (QueueFull, ConnectionLost) as error:
            error.accepted += sent.taken
            raise

    def _patience_of(self, life_s: float) -> float:
        """Return the seconds to wait for a reply about records with `life_s` left."""
        return min(self._link.timeout_s, max(life_s, _LEAST_REPLY_S))

    def _put_once(
        self, batch: Sequence[Fields], life_s: float, replies: Replies | None
    ) -> tuple[list[bytes], QueueFull | None]:
        """Enqueue as many records as have room. Return their ids, and the error if Redis left records out."""
        with self.link() as link:
            link.set_patience(self._patience_of(life_s))
            link.drop_if_stale()
            room = len(batch)
            try:
                if self.full:
                    surplus, full = self._ask(link, room)
                    room -= surplus
                    if not room:
                        return [], full
                packet = transaction(self._job, _records(batch[:room], life_s, replies))
                taken, full = admitted(self._job, link.transact(packet))
            except RedisRefused as error:
                taken, full = [], refused(self._job, error)
            self.full = len(taken) < len(batch)
        return taken, full

    def _ask(self, link: Link, count: int) -> tuple[int, QueueFull | None]:
        """Return how many of `count` records have no room, and the error for them, if any."""
        try:
            return answered(self._job, link.call(*question(self._job, count)))
        except ConnectionLost as error:
            error.unsent = True  # the records to enqueue have not been sent
            raise

    def _hear(self) -> None:
        """Read the replies to the records that have been under way for longest. Called with the lock."""
        sent = self._under_way.popleft()
        if not self._link.connected or self._link.connections != sent.connection:
            return
        self._link.set_patience(sent.patience_s)
        try:
            taken, full = admitted(self._job, executed(self._link.read_all(sent.waits_for)))
            sent.taken, sent.error, self.full = len(taken), None, full is not None
        except ConnectionLost as error:
            sent.error = error
        except RedisRefused as error:
            sent.error = None
            if cannot_serve(error):
                return
            try:
                refused(self._job, error)
                self.full = True
            except RedisRefused as final:
                sent.error = final


def _records(batch: Sequence[Fields], life_s: float, replies: Replies | None) -> Records:
    reply = [] if replies is None else [keys.REPLY, replies.key.encode()]
    return Records(batch, [*reply, *deadline(life_s)])


def enqueue(link: Link, job: str, records: Records) -> list[bytes]:
    """Enqueue records without retries. Return the ids of the records that had room.

    Raises:
        ConnectionLost: Redis cannot be reached, cannot serve, or went away.
        RedisRefused: Redis will not take the records.
    """
    return admitted(job, link.transact(transaction(job, records)))[0]
