"""Plan as text for the terminal."""

from collections.abc import Iterator
from pathlib import PurePath
from textwrap import wrap

from cluster_serving.client.servers.process.table import Table
from cluster_serving.swarm.plan.planning import Demand, Plan, Point
from cluster_serving.swarm.plan.profile import Profile

_LOST = {"none": "", "host": "after the loss of a host", "zone": "after the loss of a zone"}
_SINGULAR = ("Redis", "network")
_MUCH = 1.6  # times the CPU time of processes
_LEASE_S = 10  # the default (node/config/settings.py)


def lines(costs: Profile, demand: Demand, plan: Plan, width: int) -> Iterator[str]:
    """Yield the lines of a plan, each of `width` columns at most."""
    over = "over HTTP" if demand.over_http else "over Redis"
    run_ms = 1000 * costs.worker.seconds(costs.batch) / costs.threads
    head = Table("", "")
    head.add("load", f"{demand.rate:,.0f} records a second {over}, 99 of 100 within {1000 * demand.p99_s:g} ms")
    head.add(
        "profile",
        f"{PurePath(costs.model).name}: {_size(costs.payload_bytes)} a record, {run_ms:.3g} ms a run of {costs.batch}",
    )
    head.add("", f"measured {costs.made[:10]} on {costs.machine}")
    yield from head.lines(width)
    yield ""
    machines = Table("machines", "number", "each", numbers=["number"], wide=["each"])
    of_node = f"{demand.cores} cores, {plan.workers} workers in {_size(plan.node_memory_bytes)}"
    machines.add("nodes", f"{plan.nodes:,}", f"{of_node}, {_network(plan.node_network)} in")
    if plan.spare_nodes:
        machines.add("  spare", f"{plan.spare_nodes:,}", f"of these, for the loss of a {demand.survive}")
    of_redis = f"2 cores, {_size(plan.redis_memory_bytes)} of data for {demand.outage_s:g} s without nodes"
    machines.add("Redis", f"{plan.redis_servers:,}", f"{of_redis}, {_network(plan.redis_network)} each way")
    if plan.frontends:
        machines.add("frontends", f"{plan.frontends:,}", "1 core")
    price = (
        "" if plan.cost_per_hour is None else f"{plan.cost_per_hour:,.2f} an hour, {_month(plan.cost_per_hour)} a month"
    )
    machines.add("cores", f"{plan.cores:,}", price)
    yield from machines.lines(width)
    yield ""
    latency = Table("latency", "p50 ms", "p99 ms", numbers=["p50 ms", "p99 ms"])
    latency.add("with all machines", *_latency(plan.whole))
    if _LOST[demand.survive]:
        latency.add(_LOST[demand.survive], *_latency(plan.reduced))
    yield from latency.lines(width)
    yield ""
    limits = Table("fails at", "records/s", numbers=["records/s"])
    for part, rate in plan.limits.items():
        limits.add(part, f"{rate:,.0f}")
    yield from limits.lines(width)
    yield ""
    for sentence in _sentences(demand, plan):
        yield from wrap(sentence, width)


def of_full_machine(factor: float) -> Iterator[str]:
    """Yield the sentences about the factor by which the costs of a profile were raised."""
    yield f"A full machine takes {factor:.2f} times the CPU time of its processes."
    if factor > _MUCH:
        yield "That is much: measure on a machine that does nothing else."


def _sentences(demand: Demand, plan: Plan) -> Iterator[str]:
    first = next(iter(plan.limits))
    yield f"{first[0].upper()}{first[1:]} fail{'s' * first.startswith(_SINGULAR)} first, as the rate grows."
    if plan.knee is None:
        yield f"Up to {plan.curve[-1].rate:,.0f} records a second, the p99 is at most twice that of a light load."
    else:
        yield f"From {plan.knee:,.0f} records a second on, the p99 is more than twice that of a light load."
    if plan.late_records:
        held = f"A {demand.survive} that is lost without a drain holds about {plan.late_records:,} records"
        yield f"{held}: their answers come after the lease ({_LEASE_S} s)."
    if plan.redis_servers > 1:
        yield "A job is on one Redis: take as many jobs as Redis servers, each with its share of the nodes."


def _latency(point: Point) -> tuple[str, str]:
    return f"{point.p50_ms:.3g}", f"{point.p99_ms:.3g}"


def _month(cost_per_hour: float) -> str:
    return f"{730 * cost_per_hour:,.0f}"


def _network(bytes_per_s: float) -> str:
    bits = 8 * bytes_per_s
    return f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"


def _size(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"
