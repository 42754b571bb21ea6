"""What a node has read and left unanswered when it was killed, under names that none of its lanes reads under now.

A lane takes again what is pending under its own name. Without this, a node that starts with fewer lanes than it had, or that was
killed after a change, would have to wait for the lease of the rest, as other nodes do.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any

import redis

from cluster_serving.client import keys

_AT_ONCE = 256


def inherit(client: redis.Redis, job: str, node: str, consumers: Collection[str]) -> int:
    """Put it under the first of these names, before anybody reads under it.

    Args:
        client: of the job's Redis.
        job: its stream.
        node: the name of the node, of which no other process runs.
        consumers: the names that its lanes read under (`crew.consumer_of`).

    Returns:
        How many records.

    Raises:
        redis.RedisError: Redis cannot be reached, or refuses; there may be no stream yet.
    """
    heir = next(iter(consumers))
    ours = re.compile(rf"{re.escape(node)}(\.(\d+b?|b))?")
    found: Any = client.xinfo_consumers(job, keys.GROUP)
    count = 0
    for name in (consumer["name"].decode(errors="replace") for consumer in found if consumer["pending"]):
        if ours.fullmatch(name) is None or name in consumers:
            continue
        for ids in _held(client, job, name):
            # JUSTID: it is no delivery.
            client.xclaim(job, keys.GROUP, heir, 0, ids, justid=True)
            count += len(ids)
    return count


def _held(client: redis.Redis, job: str, consumer: str) -> Iterator[list[Any]]:
    """The ids of all entries that a consumer holds, some at a time."""
    first: bytes = b"-"
    while True:
        pending: Any = client.xpending_range(job, keys.GROUP, first, "+", _AT_ONCE, consumer)
        if not pending:
            return
        yield [entry["message_id"] for entry in pending]
        first = b"(" + pending[-1]["message_id"]
