"""Gets records into a job's stream, and tries again for as long as it is certain that Redis has not taken them."""

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

_LEAST_REPLY_S = 0.1  # that a record's life may be over soon does not make Redis faster


class Sent:
    """Records that have been sent, and of which Redis may not have said yet what came of them."""

    __slots__ = ("batch", "connection", "error", "patience_s", "replies", "taken", "until_s", "waits_for")

    def __init__(self, batch: Sequence[Fields], until_s: float, replies: Replies) -> None:
        self.batch = batch
        self.until_s = until_s
        self.replies = replies
        self.connection = self.waits_for = 0  # which one of the link, and for how many replies
        self.patience_s = 0.0
        self.taken = 0  # from the first on
        self.error: Exception | None = None


class Admission:
    """The way into one job's stream; safe for use by several threads.

    Args:
        link: used by others within `link` only.
        job: its name.
        patience_s: how long to try again.

    Attributes:
        full: whether there was no room at last: then it is asked for before anything is sent.

    Raises:
        InvalidValue: from each method: a record has too many fields.
        QueueFull: the same: there was no room; its `accepted` says how many of those that were given were enqueued, in order.
        ConnectionLost: the same; unless it is `unsent`, some more than `accepted` may have been.
        RedisRefused: the same, where trying again is of no use.
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
        """The link, for one thread, with no reply under way."""
        with self._lock:
            while self._under_way:
                self._hear()
            yield self._link

    def put_all(self, records: Iterable[Fields], life_s: float, replies: Replies | None = None) -> int:
        """Enqueue records, some at a time; how many there were. The arguments are those of `put`."""
        accepted = 0
        for chunk in chunks(records):
            try:
                accepted += len(self.put(chunk, life_s, replies))
            except (QueueFull, ConnectionLost) as error:
                error.accepted += accepted
                raise
        return accepted

    def put(self, batch: Sequence[Fields], life_s: float, replies: Replies | None = None) -> list[str]:
        """Enqueue all of these; their ids.

        Args:
            batch: the fields of each.
            life_s: seconds in which a node must begin them.
            replies: where their results go, if they are awaited.
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
        """Send these without waiting for what comes of them, which `complete` sees to. The arguments are those of `put`.

        They are left to `complete` altogether, and wait for no reply, where there is no connection yet, or was no room.
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
        """See that all of these are enqueued, and try again with those that Redis has not taken."""
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
        """How long to wait for a reply about records that live so long."""
        return min(self._link.timeout_s, max(life_s, _LEAST_REPLY_S))

    def _put_once(
        self, batch: Sequence[Fields], life_s: float, replies: Replies | None
    ) -> tuple[list[bytes], QueueFull | None]:
        """Enqueue what there is room for; why it was not all, if it was tried."""
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
        """How many of so many records there is no room for, and why."""
        try:
            return answered(self._job, link.call(*question(self._job, count)))
        except ConnectionLost as error:
            error.unsent = True  # of the records
            raise

    def _hear(self) -> None:
        """What came of the records that have been under way for longest; with the lock."""
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
    """Enqueue records, without trying again; the ids of those that there was room for.

    Raises:
        ConnectionLost: Redis cannot be reached, cannot serve, or went away.
        RedisRefused: it will not take them.
    """
    return admitted(job, link.transact(transaction(job, records)))[0]
