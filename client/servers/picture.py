"""Picture of a job: the load of all its nodes together, and the part that limits it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.load import STAGES, Load

_BUSY = 0.9  # share of the time from which on a part limits the rest
_UNEVEN = 2 / 3  # of the busiest worker's share, below which the other workers count as idle
_THROTTLED = 0.05
_STARVED = 0.1
_HALF = 0.5
_SLOW_WRITE_S = 0.005
_EMPTY = 0.1  # share of the time without records from which on more records would help
_TOGETHER = 2  # records that come together, where 1 are as many as come by chance
_BYTE_S = 0.8e-9  # seconds that Redis takes for a byte on its way (bench.payload)
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
        full: reason for which no records are admitted. Empty: records are admitted.
        fill: mean share of a full batch in a run of the model. 0: no run.
        bytes_s: bytes a second of the records that nodes take from Redis.
        busy: share of the time that each worker works.
        reader: share of the time that the busiest reader works.
        writer: the same of the busiest writer.
        redis_wait: share of the time that a writer waits for Redis, of several writers the longest.
        redis: share of a core that Redis uses.
        machine: share of the cores of the busiest machine that any process uses.
        throttled: share of the time during which a quota holds a node back.
        starved: share of the time during which a process waits for memory.
        empty: share of the time during which a node holds no record, the mean of all nodes.
        burst: records from one such time to the next, the mean of all nodes.
        dead_letters: number of dead letters.
        stages: mean seconds of a record in each stage (`load.STAGES`). Empty: no records.
    """

    records_s: float
    errors_s: float
    p50_s: float
    p99_s: float
    backlog: int
    oldest_s: float
    full: str
    fill: float
    bytes_s: float
    busy: tuple[float, ...]
    reader: float
    writer: float
    redis_wait: float
    redis: float
    machine: float
    throttled: float
    starved: float
    empty: float
    burst: float
    dead_letters: int
    stages: Mapping[str, float]

    @classmethod
    def of(cls, nodes: Sequence[Heartbeat]) -> "JobPicture | None":
        """Return the picture of a job by the heartbeats of its nodes. None: no node tells its load."""
        loads = [(node, node.load) for node in nodes if node.load is not None]
        if not loads:
            return None
        last = nodes[-1].figures  # the facts about the queue are equal for all nodes
        runs = [(load.rows / node.batch_size, load.records_s) for node, load in loads if load.rows and node.batch_size]
        weight = sum(records_s for _, records_s in runs)
        writers = [each for _, load in loads for each in load.processes if each.name.startswith("writer")]
        readers = [each for _, load in loads for each in load.processes if each.name.startswith("reader")]
        return cls(
            records_s=sum(load.records_s for _, load in loads),
            errors_s=sum(load.errors_s for _, load in loads),
            p50_s=max(load.p50_s for _, load in loads),
            p99_s=max(load.p99_s for _, load in loads),
            backlog=last.get("backlog", 0),
            oldest_s=last.get("oldest_ms", 0) / 1000,
            full=next((node.full for node in nodes if node.full), ""),
            fill=sum(fill * records_s for fill, records_s in runs) / weight if weight else 0.0,
            bytes_s=sum(load.records_s * load.record_bytes for _, load in loads),
            busy=tuple(share for _, load in loads for share in load.busy),
            reader=max([load.reader for _, load in loads] + [reader.busy for reader in readers]),
            writer=max([load.writer for _, load in loads] + [writer.busy for writer in writers]),
            redis_wait=max((writer.blocked for writer in writers), default=0.0),
            redis=max(load.redis for _, load in loads),
            machine=max(load.machine for _, load in loads),
            throttled=max(load.throttled for _, load in loads),
            starved=max(load.starved for _, load in loads),
            empty=sum(load.empty for _, load in loads) / len(loads),
            burst=sum(load.burst for _, load in loads) / len(loads),
            dead_letters=last.get("dead_letters", 0),
            stages=_stages([load for _, load in loads if load.stages]),
        )

    @property
    def mean_busy(self) -> float:
        """Mean share of the time that the workers work."""
        return sum(self.busy) / len(self.busy) if self.busy else 0.0

    @property
    def workers_are_busy(self) -> bool:
        """True while the workers could take no more work."""
        return self.mean_busy >= _BUSY

    @property
    def busiest(self) -> float:
        """Share of the time that the busiest worker works."""
        return max(self.busy, default=0.0)

    @property
    def others(self) -> float:
        """Mean share of the time that the workers beside the busiest one work."""
        return (sum(self.busy) - self.busiest) / max(1, len(self.busy) - 1)

    @property
    def working_s(self) -> float:
        """Mean seconds of a record in a worker. 0: no records."""
        return sum(self.stages.get(name, 0.0) for name in ("decode", "model", "store"))

    @property
    def decoding(self) -> float:
        """Share of the time of workers on batches that they spend on decoding inputs."""
        return self.stages["decode"] / self.working_s if self.working_s else 0.0

    @property
    def waits_for_redis(self) -> bool:
        """True while the result of a record is longer on its way to Redis than the record is in a worker."""
        return self.redis_wait >= _HALF and self.stages.get("write", 0.0) >= max(_SLOW_WRITE_S, self.working_s)


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


@dataclass(frozen=True)
class _Rule:
    """Limit `code`, the condition under which it holds, and its sentence: the fact, a colon, and the remedy."""

    code: str
    holds: Callable[[JobPicture], bool]
    sentence: Callable[[JobPicture], str]


def _crowding(job: JobPicture) -> str:
    """Return the sentence about a busy machine, whose callers cannot send faster. Empty: no machine is busy."""
    if job.machine < _BUSY:
        return ""
    return f" The cores of a machine are busy {job.machine:.0%} of the time, which slows callers there."


_RULES = (
    _Rule(
        "memory",
        lambda job: bool(job.full),
        lambda job: f"No records are admitted, because {job.full}: raise maxmemory of Redis, or take results sooner.",
    ),
    _Rule("idle", lambda job: not job.records_s and not job.backlog, lambda _: "No records come."),
    _Rule(
        "quota",
        lambda job: job.throttled >= _THROTTLED,
        lambda job: (
            f"The CPU quota holds the node back {job.throttled:.0%} of the time: raise it, or set fewer workers."
        ),
    ),
    _Rule(
        "memory",
        lambda job: job.starved >= _STARVED,
        lambda job: f"Processes wait for memory {job.starved:.0%} of the time: set fewer workers, or add memory.",
    ),
    _Rule(
        "payload",
        lambda job: job.redis >= _BUSY and job.bytes_s * _BYTE_S >= _HALF * job.redis,
        lambda job: (
            f"Redis uses {job.redis:.0%} of a core, most of it for records of {job.bytes_s / job.records_s / 1000:,.0f} kB: "
            "send uint8 or JPEG in place of float32, or let clients `compress`."
        ),
    ),
    _Rule(
        "redis",
        lambda job: job.redis >= _BUSY,
        lambda job: f"Redis uses {job.redis:.0%} of a core: send smaller records, or give the job a Redis of its own.",
    ),
    _Rule(
        "reader",
        lambda job: job.reader >= _BUSY,
        lambda job: (
            f"The reader is busy {job.reader:.0%} of the time: send tensors of the model's own dtype, or add nodes."
        ),
    ),
    _Rule(
        "decode",
        lambda job: job.workers_are_busy and job.decoding >= _HALF,
        lambda job: (
            f"The workers are busy {job.mean_busy:.0%} of the time, {job.decoding:.0%} of it with decoding: "
            "send smaller images or tensors, or set imageDecoding: reduced."
        ),
    ),
    _Rule(
        "callers",
        lambda job: job.workers_are_busy and 0 < job.fill < _HALF,
        lambda job: (
            f"The workers are busy {job.mean_busy:.0%} of the time with batches {job.fill:.0%} full: send more at once."
        ),
    ),
    _Rule(
        "workers",
        lambda job: job.workers_are_busy,
        lambda job: f"The workers are busy {job.mean_busy:.0%} of the time: add nodes, or run `cluster-serving tune`.",
    ),
    _Rule(
        "one-worker",
        lambda job: job.busiest >= _BUSY and job.others < _UNEVEN * job.busiest,
        lambda job: (
            f"One worker is busy {job.busiest:.0%} of the time and the others {job.others:.0%}: "
            "`cluster-serving status --placement` shows its cores."
        ),
    ),
    _Rule(
        "redis",
        lambda job: job.waits_for_redis,
        lambda job: (
            f"The writer waits for Redis {job.redis_wait:.0%} of the time, {1000 * job.stages['write']:.0f} ms a batch: "
            "look for slow commands with `redis-cli slowlog get`, and for processes on its core."
        ),
    ),
    _Rule(
        "writer",
        lambda job: job.writer >= _BUSY,
        lambda job: (
            f"The writer is busy {job.writer:.0%} of the time: return less with `postProcessing`, or add nodes."
        ),
    ),
    _Rule(
        "stalled",
        lambda job: not job.records_s,
        lambda job: f"{job.backlog:,} records wait, and none has been answered in the last 10 s: see the log.",
    ),
    _Rule(
        "lock-step",
        lambda job: job.empty >= _EMPTY and job.burst * job.empty >= _TOGETHER,
        lambda job: (
            f"{job.burst:.0f} records come at a time, and none are there {job.empty:.0%} of the time: "
            f"send the next before the last are answered.{_crowding(job)}"
        ),
    ),
    _Rule(
        "callers",
        lambda job: job.empty >= _EMPTY or (job.oldest_s < _BEHIND_S and 0 < job.fill < _HALF),
        lambda job: (
            f"The callers send no more: workers are busy {job.mean_busy:.0%} of the time, batches {job.fill:.0%} full."
            f"{_crowding(job)}"
        ),
    ),
    _Rule(
        "machine",
        lambda job: job.machine >= _BUSY,
        lambda job: (
            f"The cores of a machine are busy {job.machine:.0%} of the time, and the workers {job.mean_busy:.0%}: move "
            "other processes away, or add nodes."
        ),
    ),
    _Rule(
        "none",
        lambda _: True,
        lambda job: f"Nothing is at its limit: workers are busy {job.mean_busy:.0%} of the time.",
    ),
)
"""Limits in the order in which they are looked for. A quota, a full Redis or a slow one makes other parts look busy or idle.

The time without records tells callers that send in step from callers that send little. With `burst` records from one time without
records to the next, and the share `empty` of the time without, `burst * empty` is 1 for records that come one by one and by
chance (busy period of M/G/1 queues), less for callers that wait for their answers, and the number of records in a batch for
batches.
"""


def limit(picture: JobPicture) -> Limit:
    """Return the part that limits a job at present."""
    return next(Limit(rule.code, rule.sentence(picture)) for rule in _RULES if rule.holds(picture))
