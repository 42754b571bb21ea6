"""Inheritance of entries that a killed node left unanswered under consumer names no longer used by its lanes.

A lane takes the pending entries of its own consumer name again. Without inheritance, a node that starts with fewer lanes than
before, or was killed after a change, would have to wait until the lease of the rest expires, like every other node.
"""

import re
from collections.abc import Collection
from typing import Any, NamedTuple

import redis

from cluster_serving.client import keys

_AT_ONCE = 256


class LaneName(NamedTuple):
    """Name of a lane: the number of the lane in a generation of the lanes of a node. Both numbers count from 0."""

    node: str
    generation: int
    number: int

    @property
    def consumer(self) -> str:
        """Consumer name of the lane in the consumer group.

        Generations alternate between `<node>` and `<node>.b`, and in further lanes between `<node>.1` and `<node>.1b`. While a
        node changes, two generations of its lanes read at the same time, and entries pending under a name belong to one
        generation. A generation begins after the last but one has ended, so two names for each lane are enough. The names stay
        for ever.
        """
        suffix = f"{self.number or ''}{'b' if self.generation % 2 else ''}"
        return f"{self.node}.{suffix}" if suffix else self.node


def inherit(client: redis.Redis, job: str, node: str, consumers: Collection[str]) -> int:
    """Claim the entries for the first of the given consumer names, before a lane reads under the name.

    Args:
        client: client of the job's Redis.
        job: stream of the job.
        node: name of the node. No other process runs under the name.
        consumers: consumer names of the node's lanes (`LaneName.consumer`).

    Returns:
        The number of claimed entries.

    Raises:
        redis.RedisError: Redis cannot be reached or refuses a command, or the stream does not exist yet.
    """
    heir = next(iter(consumers))
    ours = re.compile(rf"{re.escape(node)}(\.(\d+b?|b))?")
    found: Any = client.xinfo_consumers(job, keys.GROUP)
    count = 0
    for name in (consumer["name"].decode(errors="replace") for consumer in found if consumer["pending"]):
        if ours.fullmatch(name) is None or name in consumers:
            continue
        first = b"-"
        while True:
            pending: Any = client.xpending_range(job, keys.GROUP, first, "+", _AT_ONCE, name)
            if not pending:
                break
            ids = [entry["message_id"] for entry in pending]
            # JUSTID: the claim does not count as a delivery.
            client.xclaim(job, keys.GROUP, heir, 0, ids, justid=True)
            count += len(ids)
            first = b"(" + pending[-1]["message_id"]
    return count
