"""A job with an autoscaler on a simulated clock: nodes that take time to start, a queue, and what the heartbeats would say.

A worker takes whatever waits as soon as it is idle, up to a batch, and a run takes `fixed_s + row_s * rows`. Records are counted,
and not simulated one by one, so that a day takes a second.
"""

import math
import random
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from cluster_serving.swarm.autoscale.decision import Decision
from cluster_serving.swarm.autoscale.pace import NodeWork
from cluster_serving.swarm.autoscale.policy import Facts, Policy
from cluster_serving.swarm.autoscale.settings import Autoscale

MIDNIGHT: Final = datetime(2026, 11, 25, tzinfo=UTC)
_RECENT: Final = 5
"""Looks that a heartbeat sums up."""
_NORMAL: Final = 50.0
"""Mean from which on a Poisson number is drawn as a normal one."""


def poisson(chance: random.Random, mean: float) -> int:
    """Draw a Poisson number."""
    if mean > _NORMAL:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    number, product, least = 0, chance.random(), math.exp(-mean)
    while product > least:
        number, product = number + 1, product * chance.random()
    return number


class World:
    """A job whose load is given as records a second over the time.

    Args:
        settings: of the autoscaler.
        load: records a second at a time in seconds.
        seed: of the arrivals.
        nodes: that run at the begin.
        start_s: that a node takes from its order until it serves.
        look_s: between two looks of the autoscaler.

    Attributes:
        ordered: number of nodes that were wanted, at every look.
        waits_s: time that a record would wait which comes at that look.
        served: records that were answered so far.
    """

    workers: Final = 2
    batch: Final = 16
    fixed_s: Final = 0.03
    row_s: Final = 0.004

    def __init__(
        self,
        settings: Autoscale,
        load: Callable[[float], float],
        *,
        seed: int = 0,
        nodes: int = 1,
        start_s: float = 8.0,
        look_s: float = 2.0,
    ) -> None:
        self.policy = Policy(settings)
        self.load = load
        self.now_s = 0.0
        self.ordered: list[int] = []
        self.waits_s: list[float] = []
        self.decisions: list[Decision] = []
        self.arrived = self.served = 0
        self.replicas = nodes
        self._start_s, self._look_s = start_s, look_s
        self._ready_s = [-math.inf] * nodes
        self._chance = random.Random(seed)
        self._works: deque[tuple[float, float, float]] = deque(maxlen=_RECENT)  # rows, records a second and node, busy

    @property
    def pace(self) -> float:
        """Records a second of a node with full batches."""
        return self.workers * self.batch / (self.fixed_s + self.row_s * self.batch)

    @property
    def ready(self) -> int:
        """Number of nodes that serve."""
        return sum(ready_s <= self.now_s for ready_s in self._ready_s)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += self._look_s
            self._serve()
            self._look()

    def _serve(self) -> None:
        self.arrived += poisson(self._chance, self.load(self.now_s) * self._look_s)
        waiting, ready = self.arrived - self.served, self.ready
        if not ready:
            self.waits_s.append(self._look_s if waiting else 0.0)
            return
        done = min(waiting, int(ready * self.pace * self._look_s))
        self.served += done
        each = done / self._look_s / ready
        # Rows at which all workers are busy all the time, or one row a run.
        spare = self.workers - each * self.row_s
        rows = min(self.batch, max(1.0, each * self.fixed_s / spare)) if spare > 0 else self.batch
        busy = min(1.0, each / rows * (self.fixed_s + self.row_s * rows) / self.workers)
        noise = self._chance.uniform(0.95, 1.05)
        self._works.append((rows if done else 0.0, each, busy * noise))
        self.waits_s.append((self.arrived - self.served) / (ready * self.pace))

    def _look(self) -> None:
        count = max(1, len(self._works))
        rows, each, busy = (sum(work[at] for work in self._works) / count for at in range(3))
        work = NodeWork(self.workers, self.batch, rows, each, min(1.0, busy))
        facts = Facts(self.arrived, self.arrived - self.served, "model", [work] * self.ready, self.replicas)
        decision = self.policy.decide(self.now_s, MIDNIGHT + timedelta(seconds=self.now_s), facts)
        self.decisions.append(decision)
        if decision.wanted is not None:
            self._order(decision.wanted)
        self.ordered.append(self.replicas)

    def _order(self, wanted: int) -> None:
        self._ready_s += [self.now_s + self._start_s] * (wanted - self.replicas)
        del self._ready_s[wanted:]  # the youngest go first, as in Swarm
        self.replicas = wanted

    def reversals(self, begin: int = 0) -> int:
        """Return how often the number of nodes went up after it went down, or down after it went up, from a look on."""
        steps = [after - before for before, after in pairwise(self.ordered[begin:]) if after != before]
        return sum(before * after < 0 for before, after in pairwise(steps))
