"""Results that do not come: the commands that ask Redis for the reason, and the meaning of the replies. No I/O.

| asked | when | commands |
|---|---|---|
| for hope | after a read that waited in vain, if no result has ever come, or if the connection broke meanwhile | `for_hope` |
| for entries | with `for_hope`, if the connection broke meanwhile | lost.lua |
| for the reason | when the time of a call is over | `for_reason` |

A call that is answered in time asks nothing.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cluster_serving.client import keys
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.resp import Command

LOST = "Redis has lost the record, as a failover or a restart can"
"""Reason for a result that cannot come: the entry has left the job's stream, and no result has come instead."""
_LOST = "\n".join(
    line for line in Path(__file__).with_name("lost.lua").read_text().splitlines() if not line.startswith("--")
)
_BEAT_LIFE_S = 7  # a heartbeat lives for 6 s, and its time has whole seconds
_MOST_JOBS = 10


class Hope(NamedTuple):
    """Signs of a result that may still come.

    Attributes:
        served: False if no node has ever served the job on this Redis.
        lost: ids of the entries that have left the job's stream, as far as Redis has looked.
    """

    served: bool
    lost: frozenset[bytes]


class Inquiry:
    """Questions of one client about its job.

    Args:
        job: name of the job.
        redis: description of the Redis, without secrets.

    Attributes:
        unanswered: the reason as far as the client knows by itself.
    """

    def __init__(self, job: str, redis: str) -> None:
        self._job = job
        self._redis = redis
        self.unanswered = f"is a node of job {job} running on {redis}?"

    def for_hope(self, entries: Collection[bytes], enough: int = 1) -> list[Command]:
        """Return the commands that ask whether a node has served the job, and which entries have left its stream.

        Redis looks for entries until it has found `enough` of them.
        """
        # The first heartbeat of a node, while the node starts, writes the limits for admission, which stay.
        served: Command = ("HGET", keys.limits_key(self._job), "maxQueueLength")
        return [served, ("EVAL", _LOST, 1, self._job, enough, *entries)] if entries else [served]

    def read_hope(self, replies: Sequence[Any]) -> Hope:
        """Read the replies to `for_hope`."""
        limit, *asked = replies
        return Hope(
            served=limit is not None,
            lost=frozenset(entry for lost in asked if not isinstance(lost, RedisRefused) for entry in lost),
        )

    def for_reason(self) -> list[Command]:
        """Return the commands that ask for the nodes of the job, and of other jobs."""
        return [("XLEN", self._job), ("TIME",), ("ZRANGE", keys.NODES, "0", "-1", "WITHSCORES")]

    def read_reason(self, replies: Sequence[Any]) -> str:
        """Return the reason in the replies to `for_reason`. A Redis user of one job may not see the nodes."""
        if any(isinstance(reply, RedisRefused) for reply in replies):
            return self.unanswered
        waiting, (now_s, _), nodes = replies
        names = [name.decode(errors="replace") for name in nodes[::2]]
        alive = [
            name for name, beat_s in zip(names, nodes[1::2], strict=True) if float(now_s) - float(beat_s) < _BEAT_LIFE_S
        ]
        if own := sum(name.startswith(keys.node_key(self._job, "")) for name in alive):
            return f"live nodes of job {self._job} on {self._redis}: {own}, records under way: {waiting}"
        jobs = sorted({keys.job_of_node(name) for name in alive})
        shown = [job if job.isprintable() else repr(job) for job in jobs[:_MOST_JOBS]]
        if len(jobs) > _MOST_JOBS:
            shown.append(f"and {len(jobs) - _MOST_JOBS} more")
        return f"no node of job {self._job} lives on {self._redis}; jobs there: {', '.join(shown) or 'none'}"
