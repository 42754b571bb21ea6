"""Simulation of a part of a large cluster, which tells of the whole.

Callers choose a Redis for each record at random, so the records of each Redis come at random times too, and the Redis servers with
their nodes know nothing of each other: one of them is simulated. A Redis with many nodes is simulated in two halves. First its
calls, which come from so many nodes that each comes at a random time, give the times that a call waits. Then a few of the
nodes are simulated record by record, with waits drawn from these times.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cluster_serving.swarm.plan.profile import Profile
from cluster_serving.swarm.plan.serving import Crew, Load, Seen, play

FEW_WORKERS = 128
"""Workers of the nodes that are simulated together, about."""
RECORDS = 6_000
"""Records of a simulation, where a run is short."""
_MOST = 5  # times as many records, where a run is long
_RUNS = 10  # simulated time, in runs of a full batch
_CALLS = 200_000
_TOGETHER = 2  # calls that come at once: a read follows an enqueueing, and a reply follows a finish
_FULL = 0.98  # share of time from which on the waits of calls would never end


def play_part(
    costs: Profile,
    nodes: float,
    crew: Crew,
    rate: float,
    *,
    few_workers: int = FEW_WORKERS,
    records: int = RECORDS,
    seed: int = 0,
) -> Seen:
    """Simulate a Redis with its nodes.

    Args:
        costs: costs of a record.
        nodes: nodes of each Redis, a mean.
        crew: workers, cores, and callers of each Redis. Its number of nodes does not count.
        rate: records a second of each Redis.
        few_workers: workers up to which all nodes are simulated.
        records: least number of records of the simulation.
        seed: seed of all random times.
    """
    most = max(1, few_workers // crew.workers)
    simulated = min(most, max(1, round(nodes)))
    share = simulated / nodes
    callers = crew.callers if simulated >= nodes else max(1, round(crew.callers * share))
    part = replace(crew, nodes=simulated, callers=callers)
    load = Load(_records(costs, rate * share, records), rate=rate * share, seed=seed)
    if simulated >= round(nodes):
        return play(costs, part, load)
    first = play(costs, part, replace(load, records=records), [0.0])
    return play(costs, part, load, waits_of_calls(first.calls_s, rate * first.calls, seed))


def waits_of_calls(calls_s: Sequence[float], rate: float, seed: int) -> list[float]:
    """Return the times that calls wait for a server that executes them one by one, in order of arrival (Lindley's recursion).

    Args:
        calls_s: CPU times of calls, to draw from.
        rate: calls a second, pairs of them at random times. A server without enough time is taken to be just busy enough to go on.
        seed: seed of the times.
    """
    chance = np.random.default_rng(seed)
    works_s = chance.choice(np.array(calls_s), _CALLS)
    rate = min(rate, _FULL / float(works_s.mean()))
    gaps_s = chance.exponential(_TOGETHER / rate, _CALLS)
    gaps_s[np.arange(_CALLS) % _TOGETHER > 0] = 0.0
    sums_s = np.cumsum(np.concatenate([[0.0], works_s[:-1] - gaps_s[1:]]))
    waits: list[float] = (sums_s - np.minimum.accumulate(sums_s)).tolist()
    return waits


def _records(costs: Profile, rate: float, least: int) -> int:
    run_s = costs.worker.seconds(costs.batch) / costs.threads
    return int(np.clip(rate * _RUNS * run_s, least, _MOST * least))
