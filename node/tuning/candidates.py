"""Candidates of a tuning: workers and threads within a budget, batch sizes, and the cost of each candidate. Pure functions."""

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
    """Shape, and the largest number of records in a batch."""

    shape: Shape
    batch: int

    def cost(self, usual: int) -> tuple[int, int, float]:
        """Return a sort key: the simpler shape first, then the batch nearer to `usual`.

        The usual batch size is preferred, because neighbouring sizes differ least from it.
        """
        return *self.shape.cost, abs(math.log2(self.batch / usual))


def shapes(budget: Budget, given: Given) -> list[Shape]:
    """Return the shapes worth a try, simplest first: about four for each doubling of the cores.

    Shapes that fill the budget have 1, 2, 4, ... threads a worker, once with one core left for reader and writer and once
    without. Smaller shapes are tried too, because more workers do not help a model whose main cost is the serving path.
    """
    totals, whole = {budget.beside_others, budget.whole}, budget.whole
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
        found |= {Shape(count, 1) for count in _doublings(budget.beside_others)}
    return sorted({Shape(min(shape.workers, MAX_WORKERS), shape.threads) for shape in found}, key=lambda one: one.cost)


def batches(given: Given, inputs: Sequence[TensorSpec], slot_bytes: int) -> list[int]:
    """Return the batch sizes worth a try, smallest first.

    A size that is set, or fixed by the model, is the only size. Otherwise 1, 2, 4, ... while a slot has room.
    """
    fixed = given.batch or next((spec.batch for spec in inputs if spec.batch), None)
    if fixed is not None:
        return [fixed]
    row_bytes = sum(spec.row_bytes for spec in inputs)
    return list(_doublings(min(LARGEST_BATCH, max(1, slot_bytes // max(1, row_bytes)))))


def ranked(found: Mapping[Candidate, Measured], objective: Objective) -> list[Candidate]:
    """Return all candidates, best first."""
    met = [one for one in found if objective.met(found[one])]
    rest = [one for one in found if one not in met]
    return sorted(met, key=lambda one: -found[one].rate) + sorted(rest, key=lambda one: found[one].p99_ms)


def _doublings(most: int) -> list[int]:
    return [1 << power for power in range(max(1, most).bit_length())]
