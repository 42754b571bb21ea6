"""What could be chosen: workers and threads within a budget, batch sizes, and what each of them costs; pure."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.node.config.choice import Given, Shape
from cluster_serving.node.config.objective import Measured, Objective
from cluster_serving.node.config.settings import MAX_WORKERS
from cluster_serving.node.topology.budget import Budget

LARGEST_BATCH = 64


class Candidate(NamedTuple):
    """A shape, and the records of a batch at most."""

    shape: Shape
    batch: int

    def cost(self, usual: int) -> tuple[int, int, float]:
        """The simpler shape costs less, then the batch that is nearer to the usual one: its neighbours differ from it least."""
        return *self.shape.cost, abs(math.log2(self.batch / usual))


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


def ranked(found: Mapping[Candidate, Measured], objective: Objective) -> list[Candidate]:
    """All of them, best first."""
    met = [one for one in found if objective.met(found[one])]
    rest = [one for one in found if one not in met]
    return sorted(met, key=lambda one: -found[one].rate) + sorted(rest, key=lambda one: found[one].p99_ms)


def _doublings(most: int) -> list[int]:
    return [1 << power for power in range(max(1, most).bit_length())]
