"""What a consumer holds in the group of a job: renewed while it works on it, and taken over when it is silent for a lease.

    XREADGROUP ──► held ──renew──► held ──renew──► ... ──► finished
                     └── silent for a lease ──claim──► held by another consumer; or again by its own next process, at once

A claim counts as a delivery, a renewal does not: an entry that was delivered often is one that its holders died with.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import redis

from cluster_serving.client import keys
from cluster_serving.client.protocol.resp import Argument, Script
from cluster_serving.client.threads.link import Link

_HERE = Path(__file__).parent
CLAIM, RENEW, PRUNE = (Script(_HERE.joinpath(f"{name}.lua").read_text()) for name in ("claim", "renew", "prune"))

_AT_ONCE = 256
_IDLE_LEASES = 100
_NEVER_MS = 1 << 52


class Pending(NamedTuple):
    """An entry that somebody holds, and how often it was delivered."""

    id: bytes
    deliveries: int


class Claimed(NamedTuple):
    """An entry that was taken, and how often it had been delivered before."""

    id: bytes
    fields: list[bytes]
    deliveries: int


class Leases:
    """What one consumer holds, and may take.

    Args:
        link: to Redis; what it raises, every method raises.
        stream: of the job.
        consumer: its name.
        lease_s: how long it may be silent.
    """

    def __init__(self, link: Link, stream: str, consumer: str, lease_s: float) -> None:
        self._link = link
        self._stream = stream
        self._consumer = consumer
        self._lease_ms = round(lease_s * 1000)

    def renew(self, held: Sequence[bytes]) -> None:
        """Say that these entries are being worked on; those that somebody else holds by now stay with him."""
        for ids in _pages(held):
            self._link.run(RENEW, [self._stream], [keys.GROUP, self._consumer, *ids])

    def own(self) -> Iterator[Pending]:
        """All entries that this consumer holds, oldest first."""
        last = b"-"
        while page := self._pending((), last, _AT_ONCE, (self._consumer,)):
            yield from page
            last = b"(" + page[-1].id

    def stale(self, count: int) -> list[Pending]:
        """Up to so many entries whose holders have been silent for a lease, oldest first."""
        return self._pending(("IDLE", self._lease_ms), b"-", count, ())

    def claim(self, ids: Sequence[bytes]) -> list[Claimed]:
        """Take those of these entries that are this consumer's own, or stale."""
        claimed: list[Claimed] = []
        for page in _pages(ids):
            arguments: list[Argument] = [keys.GROUP, self._consumer, self._lease_ms, *page]
            claimed += [Claimed(*entry) for entry in self._link.run(CLAIM, [self._stream], arguments)]
        return claimed

    def prune(self) -> list[str]:
        """Remove consumers that hold nothing and have long been silent; their names."""
        removed = self._link.run(PRUNE, [self._stream], [keys.GROUP, _IDLE_LEASES * self._lease_ms])
        return [name.decode(errors="replace") for name in removed]

    def _pending(self, idle: tuple[str | int, ...], start: bytes, count: int, owner: tuple[str, ...]) -> list[Pending]:
        reply = self._link.call("XPENDING", self._stream, keys.GROUP, *idle, start, "+", count, *owner)
        return [Pending(entry_id, deliveries) for entry_id, _, _, deliveries in reply]


def leave(client: redis.Redis, stream: str, consumers: Sequence[str]) -> None:
    """Remove these consumers from the group as far as they hold nothing.

    Raises:
        redis.RedisError: Redis cannot be reached, or refuses; a stream or group that is gone is none of these.
    """
    try:
        client.eval(PRUNE.text, 1, stream, keys.GROUP, _NEVER_MS, *consumers)
    except redis.ResponseError as error:
        if not _is_missing(error):
            raise


def _is_missing(error: redis.ResponseError) -> bool:
    return "NOGROUP" in str(error) or "no such key" in str(error).lower()


def _pages(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (ids[first : first + _AT_ONCE] for first in range(0, len(ids), _AT_ONCE))
