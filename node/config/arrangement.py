"""How lanes fill the node's budget: how many workers of how many threads, and where each process runs."""

import os
import time
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from cluster_serving.node.config.choice import Choice
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.tuned import Store
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.topology.budget import Allowance, Budget, read_allowance, read_budget
from cluster_serving.node.topology.placement import LARGEST_LANE, LanePlaces, anywhere, lanes, split

log = structlog.get_logger(__name__)

DEFAULT_BATCH = 32

_LOOK_S = 0.5
_SETTLED = 2  # looks that find the same: what goes up and down all the time is not followed


class Arrangement(NamedTuple):
    """How a model is served within a `budget`, and in which `lanes`; `measured`: the day of it, empty where nothing was."""

    budget: Budget
    choice: Choice
    lanes: tuple[LanePlaces, ...]
    measured: str = ""

    @property
    def workers(self) -> int:
        """How many worker processes."""
        return self.choice.workers

    @property
    def threads(self) -> int:
        """Of one worker."""
        return self.choice.threads

    def room(self, lane: LanePlaces) -> int:
        """How many workers this lane may come to have without being made anew, when the node may use the whole machine."""
        machine = (*self.budget.cores, *self.budget.others)
        cores = {core.physical for core in machine if lane.domain in (None, core.domain)}
        return min(LARGEST_LANE, max(len(lane.workers), len(cores) // self.threads))

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
    """What this process may use of the machine, now and later: masks and control groups change while it runs.

    Args:
        store: what was measured; None: nothing is looked for.
    """

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._known = self._seen = self._read()
        self._times_seen = 0
        self._due_s = 0.0

    def changed(self) -> bool:
        """Whether it has become another one than before, and stays so; looks twice a second."""
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

    @property
    def budget(self) -> Budget:
        """What it is now."""
        return read_budget(self._known)

    def arrange(
        self, config: Config, model: Detected, running: Choice | None = None, model_hash: str = ""
    ) -> Arrangement:
        """What was measured to be best; else what is set, or fills the budget.

        Args:
            config: a complete one.
            model: that it serves.
            running: what serves it now, within another budget; where nothing was measured for this one, batch and runtime stay.
            model_hash: the model's fingerprint, where it is known.
        """
        budget = self.budget
        tuned = self._store.find(config, model, budget, model_hash) if self._store else None
        if tuned is not None:
            return arrange(config, budget, tuned.choice)._replace(measured=tuned.day)
        choice = chosen(config, model.backend, budget)
        if running is not None:
            choice = replace(choice, batch=running.batch, runtime=running.runtime)
        return arrange(config, budget, choice)


def chosen(config: Config, backend: str, budget: Budget) -> Choice:
    """What is set, or what fills this budget."""
    workers, threads = config.resolved_parallelism(backend, budget.for_workers)
    return Choice(workers, threads, config.batch_size or DEFAULT_BATCH, config.runtime)


def arrange(config: Config, budget: Budget, choice: Choice) -> Arrangement:
    """Where the processes are kept."""
    kept = lanes(budget, choice.workers, choice.threads) if config.pinning else split(anywhere(choice.workers))
    return Arrangement(budget, choice, kept)
