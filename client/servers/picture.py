"""Picture of a job: the load of all its nodes together, and the part that limits it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.load import STAGES, Load

_BUSY = 0.9  # share of the time from which on a part limits the rest
_UNEVEN = 0.5  # of the busiest worker's share, below which the other workers count as idle
_THROTTLED = 0.05
_HALF_EMPTY = 0.5
_BEHIND_S = 1.0  # age of the oldest record from which on a queue counts as waiting


class JobPicture(NamedTuple):
    """Load of a job.

    Attributes:
        records_s: records answered a second, with a result or an error.
        errors_s: records answered with an error a second.
        p50_s: seconds from the enqueueing of a record to its result, of several nodes the longest. 0: no records.
        p99_s: the same time, that one of a hundred records exceeded.
        backlog: records in the queue, with the records that nodes work on.
        oldest_s: age of the oldest of them in seconds.
        fill: mean share of a full batch in a run of the model. 0: no run.
        busy: share of the time that each worker works.
        reader: share of a core that the busiest reader uses.
        redis: share of a core that Redis uses.
        machine: share of the cores of the busiest machine that any process uses.
        throttled: share of the time during which a quota holds a node back.
        dead_letters: number of dead letters.
        stages: mean seconds of a record in each stage (`load.STAGES`). Empty: no records.
    """

    records_s: float
    errors_s: float
    p50_s: float
    p99_s: float
    backlog: int
    oldest_s: float
    fill: float
    busy: tuple[float, ...]
    reader: float
    redis: float
    machine: float
    throttled: float
    dead_letters: int
    stages: Mapping[str, float]

    @classmethod
    def of(cls, nodes: Sequence[Heartbeat]) -> "JobPicture | None":
        """Return the picture of a job by the heartbeats of its nodes. None: no node tells its load."""
        loads = [(node, node.load) for node in nodes if node.load is not None]
        if not loads:
            return None
        last = nodes[-1].figures  # the facts about the queue are equal for all nodes
        runs = [(load.rows / node.batch_size, load.records_s) for node, load in loads if load.rows]
        weight = sum(records_s for _, records_s in runs)
        return cls(
            records_s=sum(load.records_s for _, load in loads),
            errors_s=sum(load.errors_s for _, load in loads),
            p50_s=max(load.p50_s for _, load in loads),
            p99_s=max(load.p99_s for _, load in loads),
            backlog=last.get("backlog", 0),
            oldest_s=last.get("oldest_ms", 0) / 1000,
            fill=sum(fill * records_s for fill, records_s in runs) / weight if weight else 0.0,
            busy=tuple(share for _, load in loads for share in load.busy),
            reader=max(load.reader for _, load in loads),
            redis=max(load.redis for _, load in loads),
            machine=max(load.machine for _, load in loads),
            throttled=max(load.throttled for _, load in loads),
            dead_letters=last.get("dead_letters", 0),
            stages=_stages([load for _, load in loads if load.stages]),
        )

    @property
    def mean_busy(self) -> float:
        """Mean share of the time that the workers work."""
        return sum(self.busy) / len(self.busy) if self.busy else 0.0


def _stages(loads: Sequence[Load]) -> dict[str, float]:
    """Return the mean of the stages of several nodes, weighted by their records."""
    records_s = sum(load.records_s for load in loads)
    if not records_s:
        return {}
    return {name: sum(load.stages.get(name, 0.0) * load.records_s for load in loads) / records_s for name in STAGES}


class Limit(NamedTuple):
    """Part that limits a job. `code` is stable, `sentence` is for people."""

    code: str
    sentence: str


def limit(picture: JobPicture) -> Limit:
    """Return the part that limits a job at present."""
    busiest = max(picture.busy, default=0.0)
    if not picture.records_s and not picture.backlog:
        return Limit("idle", "No records come.")
    if picture.throttled >= _THROTTLED:
        return Limit(
            "quota",
            f"The CPU quota holds the node back {picture.throttled:.0%} of the time: raise it, or set fewer workers.",
        )
    if picture.redis >= _BUSY:
        return Limit(
            "redis",
            f"Redis uses {picture.redis:.0%} of a core: send smaller records, or give the job a Redis of its own.",
        )
    if picture.reader >= _BUSY:
        return Limit(
            "reader",
            f"The reader uses {picture.reader:.0%} of a core: send tensors of the model's own dtype, or add nodes.",
        )
    if picture.mean_busy >= _BUSY and 0 < picture.fill < _HALF_EMPTY:
        return Limit(
            "callers",
            f"The workers are busy {picture.mean_busy:.0%} of the time with batches {picture.fill:.0%} full: send more at once.",
        )
    if picture.mean_busy >= _BUSY:
        return Limit(
            "workers",
            f"The workers are busy {picture.mean_busy:.0%} of the time: add nodes, or run `cluster-serving tune`.",
        )
    others = (sum(picture.busy) - busiest) / max(1, len(picture.busy) - 1)
    if busiest >= _BUSY and others < _UNEVEN * busiest:
        return Limit(
            "one-worker",
            f"One worker is busy {busiest:.0%} of the time and the others {others:.0%}: "
            "`cluster-serving status --placement` shows its cores.",
        )
    if not picture.records_s:
        return Limit(
            "stalled", f"{picture.backlog:,} records wait, and none has been answered in the last 10 s: see the log."
        )
    if picture.oldest_s < _BEHIND_S and 0 < picture.fill < _HALF_EMPTY:
        return Limit(
            "callers",
            f"The callers send no more: workers are busy {picture.mean_busy:.0%} of the time, batches {picture.fill:.0%} full.",
        )
    if picture.machine >= _BUSY:
        return Limit(
            "machine",
            f"The cores of a machine are busy {picture.machine:.0%} of the time, and the workers {picture.mean_busy:.0%}: move "
            "other processes away, or add nodes.",
        )
    return Limit("none", f"Nothing is at its limit: workers are busy {picture.mean_busy:.0%} of the time.")
