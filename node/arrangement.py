"""How a lane fills the node's budget: how many workers of how many threads, and where each process runs."""

import os
import time
from typing import NamedTuple

import structlog

from cluster_serving.node.config import Config
from cluster_serving.node.topology.budget import Allowance, Budget, read_allowance, read_budget
from cluster_serving.node.topology.placement import Places, anywhere, fitting

log = structlog.get_logger(__name__)

_LOOK_S = 1.0
_SETTLED = 3  # looks that find the same: what goes up and down all the time is not followed


class Arrangement(NamedTuple):
    """So many `workers` of so many `threads` within a `budget`, in these `places`."""

    budget: Budget
    workers: int
    threads: int
    places: Places

    @property
    def size(self) -> tuple[int, int]:
        """What no process can change while it runs."""
        return self.workers, self.threads

    def check(self) -> None:
        """Warn where there are more threads than cores."""
        if self.workers * self.threads > self.budget.whole:
            log.warning(
                "over-subscribed: more threads than cores; lower modelParallelism or threadPerModel, or leave both unset",
                workers=self.workers,
                threads_per_model=self.threads,
                budget=self.budget.described(),
            )


class Share:
    """What this process may use of the machine, now and later: masks and control groups change while it runs."""

    def __init__(self) -> None:
        self._known = self._seen = self._read()
        self._times_seen = 0
        self._due_s = 0.0

    def changed(self) -> bool:
        """Whether it has become another one than before, and stays so; looks once a second."""
        if time.monotonic() < self._due_s:
            return False
        self._due_s = time.monotonic() + _LOOK_S
        return self.look(self._read())

    def look(self, seen: Allowance) -> bool:
        """Take note of what is allowed now; whether it is to be followed."""
        self._times_seen = self._times_seen + 1 if seen == self._seen else 1
        self._seen = seen
        if seen == self._known or self._times_seen < _SETTLED:
            return False
        self._known = seen
        return True

    def _read(self) -> Allowance:
        return read_allowance(os.sched_getaffinity(0))

    def arrange(self, config: Config, backend: str) -> Arrangement:
        """What is set, or what fills the budget."""
        return arrange(config, backend, read_budget(self._known))


def arrange(config: Config, backend: str, budget: Budget) -> Arrangement:
    """What is set, or what fills this budget."""
    workers, threads = config.resolved_parallelism(backend, budget.for_workers)
    places = fitting(budget, workers, threads) if config.pinning else anywhere(workers)
    return Arrangement(budget, workers, threads, places)
