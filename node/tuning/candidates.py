"""What could be chosen: workers and threads within a budget, batch sizes, and which of equals is the simplest; pure."""

import math
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import NamedTuple

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.node.settings import MAX_WORKERS, Config
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.tuning.objective import Measured, Objective

LARGEST_BATCH = 64

_TIE = 0.05  # what is better by no more than this share is as good: runs differ by as much
_MOST_GAIN = 2.0  # in one round: one that kept to a latency, where the other did not, is no proof


def counted(count: int, noun: str) -> str:
    """Such as `1 thread` or `2 threads`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Shape(NamedTuple):
    """So many workers of so many threads."""

    workers: int
    threads: int

    @property
    def cost(self) -> tuple[int, int]:
        """Threads in all, then those of a worker: one is the usual number, and what is not tuned has it."""
        return self.workers * self.threads, self.threads

    def described(self) -> str:
        """Such as `3 workers x 1 thread`."""
        return f"{counted(self.workers, 'worker')} x {counted(self.threads, 'thread')}"


class Candidate(NamedTuple):
    """A shape, and the records of a batch at most."""

    shape: Shape
    batch: int

    def cost(self, usual: int) -> tuple[int, int, float]:
        """The simpler shape costs less, then the batch that is nearer to the usual one: its neighbours differ from it least."""
        return *self.shape.cost, abs(math.log2(self.batch / usual))


class Given(NamedTuple):
    """What the configuration says; None: open."""

    workers: int | None
    threads: int | None
    batch: int | None

    @classmethod
    def by(cls, config: Config, backend: str) -> "Given":
        """`coreNumberPerMachine` says how many workers and threads, too."""
        workers, threads, batch = config.model_parallelism, config.thread_per_model, config.batch_size
        if config.core_number_per_machine > 0:
            workers, threads = config.resolved_parallelism(backend, 1)
        return cls(workers, threads, batch)

    @property
    def is_all(self) -> bool:
        """Whether nothing of it is open."""
        return None not in self


def shapes(budget: Budget, given: Given) -> list[Shape]:
    """The shapes worth a try, simplest first.

    Those that fill the budget, with one core for reader and writer and without, for 1, 2, 4, ... threads a worker; and smaller
    ones: what the serving path costs most on gains nothing from more workers. About four for each doubling of the cores.
    """
    totals, whole = {budget.for_workers, budget.whole}, budget.whole
    if given.workers and given.threads:
        return [Shape(given.workers, given.threads)]
    if given.workers:
        threads = {*_doublings(whole // given.workers), *(total // given.workers for total in totals)}
        found = {Shape(given.workers, max(1, count)) for count in threads}
    elif given.threads:
        workers = {*_doublings(whole // given.threads), *(total // given.threads for total in totals)}
        found = {Shape(max(1, count), given.threads) for count in workers}
    else:
        found = {Shape(total // count, count) for total in totals for count in {*_doublings(total), total}}
        found |= {Shape(count, 1) for count in _doublings(budget.for_workers)}
    return sorted({Shape(min(shape.workers, MAX_WORKERS), shape.threads) for shape in found}, key=lambda one: one.cost)


def batches(given: Given, inputs: Sequence[TensorSpec], slot_bytes: int) -> list[int]:
    """The batch sizes worth a try, smallest first: 1, 2, 4, ... while a slot has room; or what is set, or fixed by the model."""
    fixed = given.batch or next((spec.batch for spec in inputs if spec.batch), None)
    if fixed is not None:
        return [fixed]
    row_bytes = sum(spec.row_bytes for spec in inputs)
    return list(_doublings(min(LARGEST_BATCH, max(1, slot_bytes // max(1, row_bytes)))))


def simplest(
    rounds: Mapping[Candidate, Sequence[Measured]], objective: Objective, usual: int, errors: float
) -> Candidate:
    """The one that costs least of those that none of the costlier ones is better than, by more than a tie.

    Args:
        rounds: what was measured of each in the same rounds, at least two.
        objective: says what is better.
        usual: the usual batch size.
        errors: so many standard errors are taken off a mean gain: the more, the surer it has to be.
    """
    by_cost = sorted(rounds, key=lambda one: one.cost(usual))

    def gains(one: Candidate, other: Candidate) -> list[float]:
        return list(map(objective.gain, rounds[one], rounds[other]))

    return next(
        one
        for at, one in enumerate(by_cost)
        if not any(_is_better(gains(costlier, one), errors) for costlier in by_cost[at + 1 :])
    )


def _is_better(gains: Sequence[float], errors: float) -> bool:
    bounded = [min(max(gain, 1 / _MOST_GAIN), _MOST_GAIN) for gain in gains]
    return mean(bounded) - errors * stdev(bounded) / math.sqrt(len(bounded)) > 1 + _TIE


def ranked(found: Mapping[Candidate, Measured], objective: Objective) -> list[Candidate]:
    """All of them, best first."""
    met = [one for one in found if objective.met(found[one])]
    rest = [one for one in found if one not in met]
    return sorted(met, key=lambda one: -found[one].rate) + sorted(rest, key=lambda one: found[one].p99_ms)


def _doublings(most: int) -> list[int]:
    return [1 << power for power in range(max(1, most).bit_length())]
