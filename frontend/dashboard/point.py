"""Point of a history: the figures of a job at one time."""

from collections.abc import Mapping, Sequence

import msgspec

from cluster_serving.client.servers.picture import JobPicture
from cluster_serving.client.wire.heartbeat import Heartbeat

_DIGITS = 6
_OF_HASH = 12


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of all nodes of a job.

    Attributes:
        records_s: records answered a second, with a result or an error, of the last 10 s.
        errors_s: records answered with an error a second.
        p50_s: seconds from the enqueueing of a record to its result, of the last minute. 0: no records.
        p99_s: the same time, that one of a hundred records exceeded.
        backlog: records in the queue, with the records that nodes work on.
        oldest_s: age of the oldest of them in seconds.
        fill: mean share of a full batch in a run of the model. 0: no run.
        busy: mean share of the time that workers work.
        nodes: number of nodes that take records.
        workers: number of workers that are ready.
        answered: records answered with a result since the start of the nodes.
        failed: records answered with an error since the start of the nodes.
        restarts: restarts of the nodes' processes since the start of the nodes.
        dead_letters: number of dead letters.
        stages: mean seconds of a record in each stage (`client/wire/load.py`), of the last 10 s. Empty: no records.
        model: beginning of the fingerprint of the model.
    """

    records_s: float
    errors_s: float
    p50_s: float
    p99_s: float
    backlog: int
    oldest_s: float
    fill: float
    busy: float
    nodes: int
    workers: int
    answered: int
    failed: int
    restarts: int
    dead_letters: int
    stages: Mapping[str, float]
    model: str


def point_of(nodes: Sequence[Heartbeat]) -> Point | None:
    """Return the point of a job by the heartbeats of its nodes, the describing node first. None: no node tells its load."""
    picture = JobPicture.of(nodes)
    if picture is None:
        return None
    return Point(
        records_s=round(picture.records_s, _DIGITS),
        errors_s=round(picture.errors_s, _DIGITS),
        p50_s=round(picture.p50_s, _DIGITS),
        p99_s=round(picture.p99_s, _DIGITS),
        backlog=picture.backlog,
        oldest_s=picture.oldest_s,
        fill=round(picture.fill, _DIGITS),
        busy=round(picture.mean_busy, _DIGITS),
        nodes=sum(node.ready for node in nodes),
        workers=sum(node.workers_alive for node in nodes),
        answered=total(nodes, "answered"),
        failed=total(nodes, "failed"),
        restarts=total(nodes, "restarts"),
        dead_letters=picture.dead_letters,
        stages={name: round(seconds, _DIGITS) for name, seconds in picture.stages.items()},
        model=nodes[0].model_hash.removeprefix("sha256:")[:_OF_HASH],
    )


def total(nodes: Sequence[Heartbeat], figure: str) -> int:
    """Return the sum of a count over nodes. A node that does not tell counts as 0."""
    told = (node.figures.get(figure) for node in nodes)
    return sum(count for count in told if isinstance(count, int))
