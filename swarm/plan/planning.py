"""Plan: the fewest nodes, Redis servers and frontends that keep the objective, also after a loss.

The first guess of each number is arithmetic, from CPU time and network. Then nodes are added until the simulation keeps the
objective. Spare machines come on top, for the host or zone that may be lost.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.swarm.plan.part import RECORDS, play_part
from cluster_serving.swarm.plan.profile import Profile
from cluster_serving.swarm.plan.serving import Crew, Seen, lanes_of

MOST_NODES, MOST_RATE = 1000, 1_000_000.0
_BUSY = 0.7  # share of time that Redis, its network, or a frontend may be busy
_LIGHT = 0.02  # share of a node's capacity, at which records hardly meet
_STEP = 1.15
_CALLERS = 16  # clients of each Redis, where there are no frontends
_SMALL = 4  # cores up to which a node has a worker on each core (node/config/choice.py)
_MEMORY = 0.5  # share of a node's memory for workers, as the rest is for those of the next model
_REDIS_CORES = 2  # of a Redis: one executes calls, one writes files and forks
_CURVE = (0.05, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
_KNEE = 2.0  # times the p99 of a light load
_OF_NODES = {"workers", "cores of the nodes", "readers", "writers", "network of the nodes"}


@dataclass(frozen=True)
class Demand:
    """Load to plan for, and the machines.

    Attributes:
        rate: records a second.
        p99_s: time that 99 of 100 answers may take.
        cores: cores of a node.
        memory: bytes of memory of a node.
        network: bytes a second of each machine, each way.
        over_http: callers call frontends, and not Redis.
        survive: loss after which the objective still holds: `none`, `host` or `zone`.
        zones: number of zones, with equal numbers of machines.
        outage_s: time for which Redis keeps all records while no node takes any.
        price: price of a core for an hour. None: not known.
        records: least number of records of each simulation.
        seed: seed of the simulation.
    """

    rate: float
    p99_s: float
    cores: int
    memory: float
    network: float
    over_http: bool = False
    survive: str = "host"
    zones: int = 3
    outage_s: float = 30.0
    price: float | None = None
    records: int = RECORDS
    seed: int = 0


class Point(msgspec.Struct, frozen=True):
    """Latency at a rate."""

    rate: float
    p50_ms: float
    p99_ms: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Answer.

    Attributes:
        nodes: number of nodes, with the spare nodes.
        spare_nodes: nodes that only a loss needs.
        workers: workers of a node.
        redis_servers: number of Redis servers. A job is on one of them, so more than one need as many jobs.
        frontends: number of frontend processes. 0: no frontends.
        cores: cores of all machines.
        cost_per_hour: price of these cores for an hour. None: not known.
        redis_memory_bytes: memory of each Redis for its data.
        node_memory_bytes: memory that the workers of a node take.
        node_network: bytes a second into a node.
        redis_network: bytes a second into a Redis, and the same out of it.
        rows: mean rows of a batch.
        whole: latency with all nodes.
        reduced: latency after the loss.
        late_records: records that wait for the lease, if the loss comes without a drain.
        limits: records a second at which each part is full. The first part fails first.
        curve: latency over the rate, with all nodes.
        knee: records a second at which the p99 is twice that of a light load. None: it is nowhere on the curve.
    """

    nodes: int
    spare_nodes: int
    workers: int
    redis_servers: int
    frontends: int
    cores: int
    cost_per_hour: float | None
    redis_memory_bytes: int
    node_memory_bytes: int
    node_network: float
    redis_network: float
    rows: float
    whole: Point
    reduced: Point
    late_records: int
    limits: dict[str, float]
    curve: list[Point]
    knee: float | None


@dataclass(frozen=True)
class Layout:
    """Numbers of nodes, Redis servers and frontend processes."""

    nodes: int
    redis_servers: int
    frontends: int


class Planner:
    """Arithmetic and simulations of a profile and a demand."""

    def __init__(self, costs: Profile, demand: Demand) -> None:
        self._costs = costs
        self._demand = demand
        self.workers = workers_of(costs, demand)

    def capacities(self, layout: Layout) -> dict[str, float]:
        """Return the records a second at which each part is full, with full batches, the smallest first.

        A part that costs nothing is never full, and left out.
        """
        costs, demand = self._costs, self._demand
        calls = 1 / costs.batch
        lanes = len(lanes_of(self.workers))
        reader_s, writer_s, worker_s = (cost.seconds(1, calls) for cost in (costs.reader, costs.writer, costs.worker))
        bytes_through = costs.payload_bytes + costs.result_bytes
        most_and_each = {
            "workers": (layout.nodes * self.workers * costs.threads, worker_s),
            "cores of the nodes": (layout.nodes * demand.cores, worker_s + reader_s + writer_s),
            "readers": (layout.nodes * lanes, reader_s),
            "writers": (layout.nodes * lanes, writer_s),
            "network of the nodes": (layout.nodes * demand.network, max(costs.payload_bytes, costs.result_bytes)),
            "Redis": (layout.redis_servers, costs.redis.seconds(1, calls)),
            "network of Redis": (layout.redis_servers * demand.network, bytes_through),
        }
        if demand.over_http and costs.frontend is not None:
            most_and_each["frontends"] = (layout.frontends, costs.frontend.seconds(1))
        found = {part: most / each for part, (most, each) in most_and_each.items() if each}
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def seen(self, layout: Layout, rate: float) -> Seen:
        """Simulate a rate."""
        servers, demand = layout.redis_servers, self._demand
        callers = max(1, round(layout.frontends / servers)) if demand.over_http else _CALLERS
        caller = self._costs.frontend if demand.over_http else None
        crew = Crew(0, self.workers, demand.cores, callers, caller)
        return play_part(
            self._costs, layout.nodes / servers, crew, rate / servers, records=demand.records, seed=demand.seed
        )

    def keeps(self, layout: Layout) -> tuple[bool, Layout]:
        """Return whether a layout keeps the objective, and the layout with as many Redis servers as its calls need."""
        demand = self._demand
        while layout.redis_servers <= layout.nodes:
            seen = self.seen(layout, demand.rate)
            needed = math.ceil(demand.rate * seen.redis_s / _BUSY)
            if needed <= layout.redis_servers:
                return seen.p99_s <= demand.p99_s, layout
            layout = self.layout(layout.nodes, needed)
        return False, layout

    def smallest(self, tell: Callable[[str], None]) -> Layout:
        """Return the layout with the fewest nodes that keeps the objective.

        Raises:
            Fault: no number of nodes does.
        """
        demand = self._demand
        one = self.layout(1)
        light = self.seen(replace(one, redis_servers=1), _LIGHT * min(self.capacities(one).values()))
        if light.p99_s > demand.p99_s:
            raise Fault(
                f"no number of nodes answers 99 of 100 records within {1000 * demand.p99_s:g} ms: without any other load it "
                f"takes {1000 * light.p99_s:.3g} ms. Allow more time, or make a run shorter (threads, precision, batch size)"
            )
        most = self.capacities(one)
        of_nodes = min(most[part] for part in most if part in _OF_NODES)
        failed, nodes = 0, math.ceil(demand.rate / of_nodes)
        while True:
            nodes = self.layout(nodes).nodes
            self._check_size(nodes)
            tell(f"number of nodes: {nodes}")
            is_kept, layout = self.keeps(self.layout(nodes))
            if is_kept:
                break
            failed, nodes = nodes, max(nodes + 1, math.ceil(nodes * _STEP))
        while layout.nodes - failed > max(1, layout.nodes // 50):
            middle = (failed + layout.nodes) // 2
            tell(f"number of nodes: {middle}")
            is_kept, smaller = self.keeps(self.layout(middle))
            if is_kept and smaller.nodes < layout.nodes:
                layout = smaller
            else:
                failed = middle
        return layout

    def layout(self, nodes: int, redis_servers: int = 1) -> Layout:
        """Return the layout with so many nodes or a few more, for each Redis as many."""
        costs, demand = self._costs, self._demand
        frontends = 0
        if demand.over_http and costs.frontend is not None:
            frontends = math.ceil(demand.rate * costs.frontend.seconds(1) / _BUSY)
        through = demand.rate * (costs.payload_bytes + costs.result_bytes) / demand.network
        work = demand.rate * costs.redis.seconds(1, 1 / costs.batch)
        redis_servers = max(redis_servers, math.ceil(max(through, work) / _BUSY))
        return Layout(redis_servers * math.ceil(nodes / redis_servers), redis_servers, frontends)

    def _check_size(self, nodes: int) -> None:
        if nodes > MOST_NODES:
            raise Fault(
                f"more than {MOST_NODES:,} nodes are needed (--cores {self._demand.cores}): take larger machines, a lower rate, "
                "or a faster model"
            )


def workers_of(costs: Profile, demand: Demand) -> int:
    """Return the workers of a node, as a node chooses them (node/config/choice.py).

    Raises:
        Fault: a node has no memory for a worker.
    """
    by_cores = max(1, (demand.cores if demand.cores <= _SMALL else demand.cores - 1) // costs.threads)
    by_memory = int(_MEMORY * demand.memory // max(1, costs.worker_bytes))
    if not by_memory:
        raise Fault(
            f"a worker takes {costs.worker_bytes / 1e9:.2g} GB, and half of a node's memory is for workers, "
            f"{_MEMORY * demand.memory / 1e9:.2g} GB: take nodes with more --memory"
        )
    return min(by_cores, by_memory)


def planned(costs: Profile, demand: Demand, tell: Callable[[str], None]) -> Plan:
    """Return the plan.

    Args:
        costs: measured costs.
        demand: load and machines.
        tell: called with each step of the search, for people.

    Raises:
        Fault: the demand cannot be met.
    """
    planner = Planner(costs, demand)
    needed = planner.smallest(tell)
    spare = spare_machines(needed.nodes, demand)
    whole = replace(needed, nodes=needed.nodes + spare)
    if whole.nodes > MOST_NODES:
        raise Fault(f"with the spare nodes more than {MOST_NODES:,} nodes are needed")
    if whole.frontends:
        whole = replace(whole, frontends=whole.frontends + spare_machines(whole.frontends, demand))
    tell("latency")
    before, after = planner.seen(whole, demand.rate), planner.seen(needed, demand.rate)
    limits = planner.capacities(whole)
    most = min(limits.values())
    curve: list[Point] = []
    for share in _CURVE:
        tell(f"latency at {share:.0%} of the capacity")
        curve.append(_point(planner.seen(whole, share * most), share * most))
    cores = whole.nodes * demand.cores + whole.redis_servers * _REDIS_CORES + whole.frontends
    of_redis = demand.rate / whole.redis_servers
    return Plan(
        nodes=whole.nodes,
        spare_nodes=spare,
        workers=planner.workers,
        redis_servers=whole.redis_servers,
        frontends=whole.frontends,
        cores=cores,
        cost_per_hour=None if demand.price is None else cores * demand.price,
        redis_memory_bytes=math.ceil(of_redis * (demand.outage_s + before.p99_s) * costs.memory_bytes),
        node_memory_bytes=planner.workers * costs.worker_bytes,
        node_network=demand.rate / whole.nodes * costs.payload_bytes,
        redis_network=of_redis * (costs.payload_bytes + costs.result_bytes),
        rows=before.rows,
        whole=_point(before, demand.rate),
        reduced=_point(after, demand.rate),
        late_records=math.ceil(demand.rate / whole.nodes * before.in_node_s * lost_machines(whole.nodes, demand)),
        limits=limits,
        curve=curve,
        knee=knee(curve),
    )


def spare_machines(needed: int, demand: Demand) -> int:
    """Return the machines beside the needed machines, so that the loss leaves as many as are needed."""
    if demand.survive == "host":
        return 1
    if demand.survive == "zone":
        of_zone = math.ceil(needed / (demand.zones - 1))
        return of_zone * demand.zones - needed
    return 0


def lost_machines(whole: int, demand: Demand) -> int:
    """Return the machines of all machines that the loss takes."""
    if demand.survive == "zone":
        return math.ceil(whole / demand.zones)
    return 1 if demand.survive == "host" else 0


def knee(curve: list[Point]) -> float | None:
    """Return the rate at which the p99 is twice that of the first point, between the points of the curve by a straight line.

    None: the p99 of no point is.
    """
    bound_ms = _KNEE * curve[0].p99_ms
    for before, after in pairwise(curve):
        if after.p99_ms > bound_ms:
            share = (bound_ms - before.p99_ms) / (after.p99_ms - before.p99_ms)
            return before.rate + share * (after.rate - before.rate)
    return None


def _point(seen: Seen, rate: float) -> Point:
    return Point(rate, 1000 * seen.p50_s, 1000 * seen.p99_s)
