"""Gets records into a job's stream, and tries again for as long as it is certain that Redis has not taken them."""

import threading
import time
from collections.abc import Iterable, Sequence

from cluster_serving.client import keys
from cluster_serving.client.commands import Fields
from cluster_serving.client.enqueueing import (
    CHUNK,
    CHUNK_BYTES,
    Records,
    admitted,
    answered,
    deadline,
    question,
    refused,
    transaction,
)
from cluster_serving.client.errors import ConnectionLost, InvalidValue, QueueFull, RedisRefused
from cluster_serving.client.link import Link
from cluster_serving.client.replies import Replies
from cluster_serving.client.retrying import Attempts

_MOST_FIELDS = 3500  # Redis' Lua takes 8000 values at once, and writes dead letters
_LEAST_REPLY_S = 0.1  # that a record's life may be over soon does not make Redis faster


class Admission:
    """The way into one job's stream; safe for use by several threads.

    Args:
        link: used with `lock` only.
        lock: see `link`.
        job: its name.
        patience_s: how long to try again.

    Attributes:
        full: whether there was no room at last: then it is asked for before anything is sent.

    Raises:
        InvalidValue: from each method: a record has too many fields.
        QueueFull: the same: there was no room; its `accepted` says how many were enqueued, in order.
        ConnectionLost: the same; unless it is `unsent`, some more than `accepted` may have been.
        RedisRefused: the same, where trying again is of no use.
    """

    def __init__(self, link: Link, lock: threading.Lock, job: str, patience_s: float) -> None:
        self._link = link
        self._lock = lock
        self._job = job
        self._patience_s = patience_s
        self.full = False

    def put_all(self, records: Iterable[Fields], life_s: float, replies: Replies | None = None) -> int:
        """Enqueue records, some at a time; how many there were. The arguments are those of `put`."""
        accepted = size = 0
        chunk: list[Fields] = []

        def flush() -> int:
            try:
                return len(self.put(chunk, life_s, replies)) if chunk else 0
            except (QueueFull, ConnectionLost) as error:
                error.accepted += accepted
                raise

        for fields in records:
            chunk.append(fields)
            size += sum(map(len, fields))
            if len(chunk) == CHUNK or size >= CHUNK_BYTES:
                accepted += flush()
                chunk, size = [], 0
        return accepted + flush()

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
        reply = [] if replies is None else [keys.REPLY, replies.key.encode()]
        while len(ids) < len(batch):
            try:
                if replies is not None:
                    replies.have_stream()
                taken, full = self._put_once(batch[len(ids) :], reply, until_s - time.monotonic())
                ids += [entry_id.decode() for entry_id in taken]
                if full is not None:
                    raise full
            except (QueueFull, ConnectionLost) as error:
                error.accepted = len(ids)
                time.sleep(attempts.pause_s(error, time.monotonic()))
        return ids

    def _put_once(self, batch: Sequence[Fields], common: Fields, life_s: float) -> tuple[list[bytes], QueueFull | None]:
        """Enqueue what there is room for; why it was not all, if it was tried."""
        with self._lock:
            self._link.set_patience(min(self._link.timeout_s, max(life_s, _LEAST_REPLY_S)))
            self._link.drop_if_stale()
            try:
                room = len(batch)
                if self.full:
                    surplus, full = answered(self._job, self._link.call(*question(self._job, len(batch))))
                    room -= surplus
                    if not room:
                        return [], full
                records = Records(batch[:room], [*common, *deadline(life_s)])
                taken, full = admitted(self._job, self._link.transact(transaction(self._job, records)))
            except RedisRefused as error:
                taken, full = [], refused(self._job, error)
            self.full = len(taken) < len(batch)
        return taken, full


def check(fields: Fields) -> None:
    """Refuse a record that would break the script for those that are sent with it.

    Raises:
        InvalidValue: it has too many fields.
    """
    if len(fields) > 2 * _MOST_FIELDS:
        raise InvalidValue(f"a record has at most {_MOST_FIELDS} fields, this one has {len(fields) // 2}")
