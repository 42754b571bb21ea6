"""Arrangement of lanes in the node's budget: number of workers, threads of each worker, and cores of each process."""

from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from cluster_serving.node.config.choice import Choice
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.objective import Objective
from cluster_serving.node.config.settings import MAX_WORKERS
from cluster_serving.node.config.tuned import Store
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.fingerprint import copy_bytes, size
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.topology.cgroups import memory_bytes
from cluster_serving.node.topology.placement import LARGEST_LANE, LanePlaces, anywhere, lanes, split

DEFAULT_BATCH = 32


class Arrangement(NamedTuple):
    """Choice and `lanes` that serve a model within a `budget`.

    `measured` is the day of the measurement, empty for a choice that was not measured.
    """

    budget: Budget
    choice: Choice
    lanes: tuple[LanePlaces, ...]
    measured: str = ""

    @property
    def workers(self) -> int:
        """Number of worker processes."""
        return self.choice.workers

    @property
    def threads(self) -> int:
        """Threads of each worker."""
        return self.choice.threads

    def room(self, lane: LanePlaces) -> int:
        """Return the number of workers that a lane can grow to without a rebuild, if the node may use the whole machine."""
        machine = (*self.budget.cores, *self.budget.others)
        cores = {core.physical for core in machine if lane.domain in (None, core.domain)}
        return min(LARGEST_LANE, max(len(lane.workers), len(cores) // self.threads))

    @property
    def oversubscribed(self) -> bool:
        """True if there are more threads than cores."""
        return self.workers * self.threads > self.budget.whole


def best_arrangement(
    config: Config,
    model: Detected,
    budget: Budget,
    store: Store,
    running: Choice | None = None,
    model_hash: str = "",
) -> Arrangement:
    """Return the arrangement with the measured choice, else with the settings, or with numbers that fill the budget.

    Args:
        config: a complete config.
        model: model of the config.
        budget: cores that the node may use.
        store: tuning results.
        running: choice that serves now, in an earlier budget. Batch and runtime stay if no result fits the new budget.
        model_hash: fingerprint of the model, if known.
    """
    tuned = store.find(config, model, budget, model_hash)
    if tuned is not None:
        return arrange(config, budget, tuned.choice)._replace(measured=tuned.day)
    choice = chosen(config, model.backend, budget, most_copies(model))
    if running is not None:
        choice = replace(choice, batch=running.batch, runtime=running.runtime)
    return arrange(config, budget, choice)


def chosen(config: Config, backend: str, budget: Budget, copies: int = MAX_WORKERS) -> Choice:
    """Return the choice that the config sets. Numbers that are not set fill the budget, with `copies` of the model at most.

    If the objective is a latency and neither number is set, every NUMA domain has a single worker, because a run is shortest when
    all threads share the run. A shadow has a copy of the model too.
    """
    if config.shadow:
        copies = max(1, copies - 1)
    if config.thread_per_model is None and Objective.parse(config.objective).latency_ms:
        copies = min(copies, budget.domains)
    workers, threads = config.resolved_parallelism(backend, budget.for_workers, copies)
    return Choice(workers, threads, config.batch_size or DEFAULT_BATCH, config.runtime)


def most_copies(model: Detected, root: Path = Path("/")) -> int:
    """Return the number of workers with a copy of the model that memory has room for, from 1 to `MAX_WORKERS`.

    Half of the memory is for the workers, because a change of model loads new workers beside the old workers.

    Args:
        model: model of the workers.
        root: root of the file system with `proc` and `sys`.
    """
    return min(MAX_WORKERS, max(1, memory_bytes(root) // 2 // copy_bytes(size(model))))


def arrange(config: Config, budget: Budget, choice: Choice) -> Arrangement:
    """Return an arrangement that gives each process its cores."""
    kept = lanes(budget, choice.workers, choice.threads) if config.pinning else split(anywhere(choice.workers))
    return Arrangement(budget, choice, kept)
