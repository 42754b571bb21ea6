"""Leases: the entries that a consumer holds in the consumer group of a job.

A consumer renews the leases of its entries `RENEWALS_A_LEASE` times a lease while it works on the entries. When the consumer is
silent for the time of a lease, another consumer takes the entries over.

    XREADGROUP ──► held ──renew──► held ──renew──► ... ──► finished
                     ├── silent for a lease ──claim──► held by another consumer
                     └── new process of the same consumer ──claim, at once──► held again

A claim counts as a delivery, a renewal does not. Many deliveries therefore mean that the holders of the entry died.
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

RENEWALS_A_LEASE = 3
"""Renewals that a consumer makes within the time of a lease."""

_AT_ONCE = 256  # most entries of one command: a long command holds up every client of Redis
_IDLE_LEASES = 100  # leases after which a silent consumer without entries is removed
_NEVER_MS = 1 << 52  # no consumer is idle for so long


class Pending(NamedTuple):
    """Entry held by a consumer, and the number of its deliveries."""

    id: bytes
    deliveries: int


class Claimed(NamedTuple):
    """Claimed entry, and the number of its deliveries before the claim."""

    id: bytes
    fields: list[bytes]
    deliveries: int


class Leases:
    """Entries that one consumer holds or may take over.

    Args:
        link: connection to Redis. Every method raises the errors of the link.
        stream: stream of the job.
        consumer: name of the consumer.
        lease_s: seconds for which a consumer may be silent.
    """

    def __init__(self, link: Link, stream: str, consumer: str, lease_s: float) -> None:
        self._link = link
        self._stream = stream
        self._consumer = consumer
        self._lease_ms = round(lease_s * 1000)

    def renew(self, held: Sequence[bytes]) -> None:
        """Renew the leases of the held entries. Entries taken over by another consumer stay with the new holder."""
        for ids in _pages(held):
            self._link.run(RENEW, [self._stream], [keys.GROUP, self._consumer, *ids])

    def own(self) -> Iterator[Pending]:
        """Yield all entries that this consumer holds, oldest first."""
        last = b"-"
        while page := self._pending((), last, _AT_ONCE, (self._consumer,)):
            yield from page
            last = b"(" + page[-1].id

    def stale(self, count: int) -> list[Pending]:
        """Return up to `count` entries whose holders have been silent for a lease, oldest first."""
        return self._pending(("IDLE", self._lease_ms), b"-", count, ())

    def claim(self, ids: Sequence[bytes]) -> list[Claimed]:
        """Claim each entry that is stale or the consumer's own, and skip the rest."""
        claimed: list[Claimed] = []
        for page in _pages(ids):
            arguments: list[Argument] = [keys.GROUP, self._consumer, self._lease_ms, *page]
            claimed += [Claimed(*entry) for entry in self._link.run(CLAIM, [self._stream], arguments)]
        return claimed

    def prune(self) -> list[str]:
        """Remove consumers that hold no entry and have long been silent. Return the names of the removed consumers."""
        removed = self._link.run(PRUNE, [self._stream], [keys.GROUP, _IDLE_LEASES * self._lease_ms])
        return [name.decode(errors="replace") for name in removed]

    def _pending(self, idle: tuple[str | int, ...], start: bytes, count: int, owner: tuple[str, ...]) -> list[Pending]:
        reply = self._link.call("XPENDING", self._stream, keys.GROUP, *idle, start, "+", count, *owner)
        return [Pending(entry_id, deliveries) for entry_id, _, _, deliveries in reply]


def leave(client: redis.Redis, stream: str, consumers: Sequence[str]) -> None:
    """Remove the given consumers from the group, except consumers that still hold an entry.

    Raises:
        redis.RedisError: Redis cannot be reached, or refuses the command. A missing stream or group is no error.
    """
    try:
        client.eval(PRUNE.text, 1, stream, keys.GROUP, _NEVER_MS, *consumers)
    except redis.ResponseError as error:
        if "NOGROUP" not in str(error) and "no such key" not in str(error).lower():
            raise


def _pages(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (ids[first : first + _AT_ONCE] for first in range(0, len(ids), _AT_ONCE))
