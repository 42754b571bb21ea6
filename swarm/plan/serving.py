"""Simulated way of records: callers, Redis, and the lanes of nodes. Every record is simulated.

    Caller ──enqueue──► Redis: stream ──read──► Lane: reader ─► batches ─► workers ─► writer ──finish──► Redis ──► Caller

Lanes that wait for records hear of them in the order in which they asked, as Redis does it. A partial batch leaves as soon as a
worker is idle. A worker has a running batch and at most one full batch that waits (node/reader/batcher.py).
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from cluster_serving.client.protocol.admission import CHUNK, CHUNK_BYTES
from cluster_serving.swarm.plan.engine import Begin, Clock, Machine, Process, Then
from cluster_serving.swarm.plan.profile import CALLS, Cost, Profile

LARGEST_LANE = 84
"""Workers of a lane, at most (node/topology/placement.py)."""
_VISITS = 3  # calls of Redis with the record itself: enqueue, read, finish
_WARMING = 0.2  # share of the records that come first and do not count


class Row(NamedTuple):
    """Record on its way: caller, and the time at which it was due."""

    caller: "Caller"
    due_s: float


@dataclass(frozen=True)
class Crew:
    """Nodes on one Redis, and the callers.

    Attributes:
        nodes: number of nodes.
        workers: workers of a node.
        cores: cores of a node.
        callers: number of client processes, or of frontend processes.
        caller: costs of a caller. None: callers have machines of their own, and cost nothing here.
        one_machine: all processes run on the cores of one node.
    """

    nodes: int
    workers: int
    cores: float
    callers: int
    caller: Cost | None = None
    one_machine: bool = False


@dataclass(frozen=True)
class Load:
    """Load of all callers together.

    Attributes:
        records: number of records of the simulation.
        rate: records a second at random times. 0: a closed loop.
        window: records that each caller of a closed loop keeps under way.
        seed: seed of the times.
    """

    records: int
    rate: float = 0.0
    window: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Seen:
    """Result of a simulation.

    Attributes:
        rate: answers a second.
        p50_s: median time from when a record was due to its answer.
        p99_s: time that 99 of 100 records do not exceed.
        rows: mean rows of a batch.
        in_node_s: mean time of a record in a node.
        redis_s: CPU time that Redis needs for a record.
        calls_s: CPU time of each call of a Redis that other nodes use too.
        calls: calls of Redis for a record.
    """

    rate: float
    p50_s: float
    p99_s: float
    rows: float
    in_node_s: float
    redis_s: float
    calls_s: Sequence[float]
    calls: float


class Server(Protocol):
    """Redis as it is called: a process that is simulated call by call, or only the times of its answers."""

    work_s: float

    def do(self, begin: Begin) -> None:
        """Execute a call."""
        ...


class DistantServer:
    """Redis that most calls of other nodes go to. A call waits as long as a call drawn from `waits_s` by chance."""

    def __init__(self, clock: Clock, waits_s: Sequence[float], wake_s: float, chance: random.Random) -> None:
        self._clock = clock
        self._wake_s = wake_s
        self._waits_s = waits_s
        self._chance = chance
        self.work_s = 0.0
        self.calls_s: list[float] = []

    def do(self, begin: Begin) -> None:
        """Execute a call, after its wait."""

        def execute() -> None:
            work_s, then = begin()
            self.work_s += work_s
            self.calls_s.append(work_s)
            self._clock.after(work_s if wait_s else work_s + self._wake_s, then)

        wait_s = self._chance.choice(self._waits_s)
        self._clock.after(wait_s, execute)


class Redis:
    """Stream of the job, lanes that wait for records, and calls."""

    def __init__(self, clock: Clock, server: Server, costs: Profile) -> None:
        self._clock = clock
        self._server = server
        self._call_s, self._visit_s = costs.redis.seconds(0) / CALLS, costs.redis.seconds(1, 0) / _VISITS
        self._handing_s = costs.handing_s
        self._stream: deque[Row] = deque()
        self._blocked: deque[Lane] = deque()
        self.calls = 0

    def enqueue(self, rows: Sequence[Row], then: Then) -> None:
        """Add records to the stream, give them to lanes that wait, and call after the answer."""

        def added() -> None:
            self._stream += rows
            self._clock.after(self._handing_s, then)
            while self._blocked and self._stream:
                lane = self._blocked.popleft()
                taken = self._taken(lane)
                self._server.do(partial(self._read, lane, taken, 0.0))

        self._call(lambda: (self._call_s + len(rows) * self._visit_s, added))

    def read(self, lane: "Lane") -> None:
        """Give a lane the next records, as soon as there are any."""

        def begin() -> tuple[float, Then]:
            if self._stream:
                return self._read(lane, self._taken(lane), self._call_s)
            self._blocked.append(lane)
            return self._call_s, _nothing

        self._call(begin)

    def finish(self, rows: Sequence[Row], then: Then) -> None:
        """Publish the results of a batch, wake the callers, and call after the answer."""

        def finished() -> None:
            self._clock.after(self._handing_s, then)
            results: dict[Caller, list[float]] = {}
            for row in rows:
                results.setdefault(row.caller, []).append(row.due_s)
            for caller, due_s in results.items():
                self._reply(caller, due_s)

        self._call(lambda: (self._call_s + len(rows) * self._visit_s, finished))

    def _reply(self, caller: "Caller", due_s: list[float]) -> None:
        def sent() -> None:
            self._clock.after(self._handing_s, lambda: caller.receive(due_s))

        self._call(lambda: (self._call_s, sent))

    def _taken(self, lane: "Lane") -> list[Row]:
        return [self._stream.popleft() for _ in range(min(lane.batch, len(self._stream)))]

    def _read(self, lane: "Lane", rows: list[Row], call_s: float) -> tuple[float, Then]:
        def sent() -> None:
            self._clock.after(self._handing_s, lambda: lane.take(rows))

        return call_s + len(rows) * self._visit_s, sent

    def _call(self, begin: Begin) -> None:
        self.calls += 1
        self._server.do(begin)


class Lane:
    """Reader, ring, workers and writer."""

    def __init__(self, clock: Clock, machine: Machine, redis: Redis, workers: int, costs: Profile) -> None:
        self._clock = clock
        self._redis = redis
        self._costs = costs
        self._handing_s = costs.handing_s
        self.batch = costs.batch
        self._free = 3 * workers + 3  # slots (node/topology/placement.py)
        self._backlog: deque[Row] = deque()
        self._open: list[Row] = []
        self._full: deque[list[Row]] = deque()
        self.workers = tuple(Process(machine, costs.worker.wake_s, costs.threads) for _ in range(workers))
        self._load = dict.fromkeys(self.workers, 0)  # batches of each worker
        self._idle = list(self.workers)
        self._single: dict[Process, None] = {}  # workers with a batch that runs, and room for the next batch
        self._done: deque[list[Row]] = deque()
        self._is_reading = self._is_writing = False
        self.reader = Process(machine, costs.reader.wake_s)
        self.writer = Process(machine, costs.writer.wake_s)
        self.batches = self.rows = 0
        self._held = 0  # records in the lane
        self._left_s = 0.0  # times at which records have left the lane, less the times at which records came

    def serve(self) -> None:
        """Read, if there is room for records."""
        if not self._is_reading and self._free:
            self._is_reading = True
            self._clock.after(self._handing_s, lambda: self._redis.read(self))

    def rows_s(self) -> float:
        """Return the time that all records together have spent in the lane."""
        return self._left_s + self._held * self._clock.now_s

    def take(self, rows: list[Row]) -> None:
        """Decode records that were read."""
        self._held += len(rows)
        self._left_s -= self._clock.now_s * len(rows)

        def decoded() -> None:
            self._backlog += rows
            self._is_reading = False
            self._hand_over()

        self.reader.do(lambda: (self._costs.reader.seconds(len(rows)), decoded))

    def _hand_over(self) -> None:
        """Put the backlog into batches, give batches to workers, and read on."""
        while True:
            self._fill()
            if self._full and (self._idle or self._single):
                rows = self._full.popleft()
            elif self._open and self._idle:
                rows, self._open = self._open, []
            else:
                break
            self._give(rows)
        self.serve()

    def _give(self, rows: list[Row]) -> None:
        """Give a batch to a worker that has none, or else to a worker that has one."""
        if self._idle:
            worker = self._idle.pop()
            self._single[worker] = None
        else:
            worker, _ = self._single.popitem()
        self._load[worker] += 1
        self.batches += 1
        self.rows += len(rows)
        run_s = self._costs.worker.seconds(len(rows))
        self._clock.after(self._handing_s, lambda: worker.do(lambda: (run_s, lambda: self._ran(worker, rows))))

    def _ran(self, worker: Process, rows: list[Row]) -> None:
        self._load[worker] -= 1
        if self._load[worker]:
            self._single[worker] = None
        else:
            del self._single[worker]
            self._idle.append(worker)

        def heard() -> None:
            self._done.append(rows)
            self._publish()
            self._hand_over()

        self._clock.after(self._handing_s, heard)

    def _publish(self) -> None:
        """Publish the next batch, unless a batch is being published."""
        if self._is_writing or not self._done:
            return
        self._is_writing = True
        rows = self._done.popleft()

        def published() -> None:
            self._held -= len(rows)
            self._left_s += self._clock.now_s * len(rows)
            self._free += 1
            self._is_writing = False
            self._publish()
            self._hand_over()

        def packed() -> None:
            self._clock.after(self._handing_s, lambda: self._redis.finish(rows, published))

        self.writer.do(lambda: (self._costs.writer.seconds(len(rows)), packed))

    def _fill(self) -> None:
        while self._backlog:
            if not self._open:
                if not self._free:
                    return
                self._free -= 1
            self._open.append(self._backlog.popleft())
            if len(self._open) == self.batch:
                self._full.append(self._open)
                self._open = []


class Caller:
    """Client process, or frontend process. Records that come while an enqueueing is under way are sent together after it."""

    def __init__(self, scene: "Scene", cost: Cost, machine: Machine) -> None:
        self._scene = scene
        self._redis = scene.redis
        self._handing_s = scene.costs.handing_s
        self._cost = cost
        self._chunk = max(1, min(CHUNK, CHUNK_BYTES // max(1, scene.costs.payload_bytes)))
        self.process = Process(machine, cost.wake_s / 2)
        self._waiting: list[Row] = []
        self._is_sending = False

    def send(self, count: int = 1) -> None:
        """Send records that are due now."""
        row = Row(self, self._scene.clock.now_s)
        self._waiting += [row] * count
        self._send()

    def receive(self, due_s: Sequence[float]) -> None:
        """Take the results of records."""
        self.process.do(lambda: (self._cost.seconds(len(due_s)) / 2, lambda: self._scene.answered(self, due_s)))

    def _send(self) -> None:
        if self._is_sending or not self._waiting:
            return
        self._is_sending = True
        rows, self._waiting = self._waiting[: self._chunk], self._waiting[self._chunk :]

        def sent() -> None:
            self._is_sending = False
            self._send()

        def made() -> None:
            self._scene.clock.after(self._handing_s, lambda: self._redis.enqueue(rows, sent))

        self.process.do(lambda: (self._cost.seconds(len(rows)) / 2, made))


class Scene:
    """All processes of a simulation, and the answers so far."""

    def __init__(self, costs: Profile, crew: Crew, load: Load, waits_s: Sequence[float] | None) -> None:
        self.costs = costs
        self.clock = clock = Clock()
        self._load = load
        self._crew = crew
        self._chance = random.Random(load.seed)  # noqa: S311 - no secret
        node_machines = [Machine(clock, crew.cores) for _ in range(crew.nodes)]
        if waits_s is None:
            redis_machine = node_machines[0] if crew.one_machine else Machine(clock, 1)
            self.server: Process | DistantServer = Process(redis_machine, costs.redis.wake_s / CALLS)
        else:
            self.server = DistantServer(clock, waits_s, costs.redis.wake_s / CALLS, self._chance)
        self.redis = Redis(clock, self.server, costs)
        self.lanes = [
            Lane(clock, machine, self.redis, workers, costs)
            for machine in node_machines
            for workers in lanes_of(crew.workers)
        ]
        self.callers = [
            Caller(self, crew.caller or Cost(0, 0, 0), node_machines[0] if crew.one_machine else Machine(clock, 1))
            for _ in range(crew.callers)
        ]
        self._sent = 0
        self._answers: list[tuple[float, float]] = []  # time of the answer, and when the record was due

    def play(self) -> Seen:
        """Simulate the load until all its records are answered."""
        load = self._load
        for lane in self.lanes:
            lane.serve()
        if load.window:
            for caller in self.callers:
                self._send(caller, load.window)
        else:
            self._arrive()
        self.clock.run()
        return self._seen()

    def answered(self, caller: Caller, due_s: Sequence[float]) -> None:
        """Count answers, and let the next records of a closed loop go."""
        now_s = self.clock.now_s
        self._answers += [(now_s, each) for each in due_s]
        if len(self._answers) >= self._load.records:
            self.clock.stop()
        elif self._load.window:
            self._send(caller, len(due_s))

    def _send(self, caller: Caller, count: int) -> None:
        self._sent += count
        caller.send(count)

    def _arrive(self) -> None:
        """Let a caller send a record, and set the next arrival."""
        if self._sent:
            self._chance.choice(self.callers).send()
        self._sent += 1
        if self._sent <= self._load.records:
            self.clock.after(self._chance.expovariate(self._load.rate), self._arrive)

    def _seen(self) -> Seen:
        done_s, due_s = np.array(sorted(self._answers)).T
        first = int(_WARMING * done_s.size)
        took_s = (done_s - due_s)[due_s >= np.sort(due_s)[first]]
        records = len(self._answers)
        lanes = self.lanes
        return Seen(
            rate=float((done_s.size - first) / (done_s[-1] - done_s[first - 1])),
            p50_s=float(np.quantile(took_s, 0.5)),
            p99_s=float(np.quantile(took_s, 0.99)),
            rows=sum(lane.rows for lane in lanes) / sum(lane.batches for lane in lanes),
            in_node_s=sum(lane.rows_s() for lane in lanes) / records,
            redis_s=self.server.work_s / records,
            calls_s=self.server.calls_s if isinstance(self.server, DistantServer) else (),
            calls=self.redis.calls / records,
        )


def lanes_of(workers: int) -> list[int]:
    """Return the number of workers of each lane of a node (node/topology/placement.py)."""
    count = -(-workers // LARGEST_LANE)
    return [len(range(at, workers, count)) for at in range(count)]


def play(costs: Profile, crew: Crew, load: Load, waits_s: Sequence[float] | None = None) -> Seen:
    """Simulate a load on nodes that share a Redis.

    Args:
        costs: costs of a record.
        crew: nodes and callers.
        load: load of the callers.
        waits_s: times that calls wait in a Redis that other nodes use too. None: Redis is for these nodes alone, and simulated.
    """
    return Scene(costs, crew, load, waits_s).play()


def _nothing() -> None:
    pass
