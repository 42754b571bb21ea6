"""How a lane fills the node's budget: how many workers of how many threads, and where each process runs."""

import os
import time
from typing import NamedTuple

import structlog

from cluster_serving.node.choice import Choice
from cluster_serving.node.config import Config
from cluster_serving.node.topology.budget import Allowance, Budget, read_allowance, read_budget
from cluster_serving.node.topology.placement import Places, anywhere, fitting

log = structlog.get_logger(__name__)

DEFAULT_BATCH = 32

_LOOK_S = 1.0
_SETTLED = 3  # looks that find the same: what goes up and down all the time is not followed


class Arrangement(NamedTuple):
    """How a model is served within a `budget`, and in which `places`."""

    budget: Budget
    choice: Choice
    places: Places

    @property
    def workers(self) -> int:
        """How many worker processes."""
        return self.choice.workers

    @property
    def threads(self) -> int:
        """Of one worker."""
        return self.choice.threads

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
        return arrange(config, read_budget(self._known), chosen(config, backend, read_budget(self._known)))


def chosen(config: Config, backend: str, budget: Budget) -> Choice:
    """What is set, or what fills this budget."""
    workers, threads = config.resolved_parallelism(backend, budget.for_workers)
    return Choice(workers, threads, config.batch_size or DEFAULT_BATCH, config.runtime)


def arrange(config: Config, budget: Budget, choice: Choice) -> Arrangement:
    """Where the processes are kept."""
    workers, threads = choice.workers, choice.threads
    places = fitting(budget, workers, threads) if config.pinning else anywhere(workers)
    return Arrangement(budget, choice, places)
