"""Layers that take a table. A table is a Python list."""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from cluster_serving.node.models.bigdl.axes import axis_of
from cluster_serving.node.models.bigdl.registry import Layer, layer
from cluster_serving.node.models.bigdl.tree import Module

_OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "CAddTable": torch.add,
    "CDivTable": torch.div,
    "CMaxTable": torch.maximum,
    "CMinTable": torch.minimum,
    "CMulTable": torch.mul,
    "CSubTable": torch.sub,
}


@layer(*_OPERATIONS, *(f"Internal{name}" for name in _OPERATIONS), takes="table")
def _operation(module: Module) -> Layer:
    operation = _OPERATIONS[module.short_class.removeprefix("Internal")]

    def run(table: Sequence[Tensor]) -> Tensor:
        return reduce(operation, table)

    return run


@layer("CAveTable", takes="table")
def _average(_module: Module) -> Layer:
    return lambda table: reduce(torch.add, table) / len(table)


@layer("DotProduct", takes="table")
def _dot_product(_module: Module) -> Layer:
    return lambda pair: (pair[0] * pair[1]).sum(-1)


@layer("CosineDistance", takes="table")
def _cosine_distance(_module: Module) -> Layer:

    def run(pair: Sequence[Tensor]) -> Tensor:
        return F.cosine_similarity(pair[0], pair[1], dim=-1, eps=1e-12)

    return run


@layer("PairwiseDistance", takes="table")
def _pairwise_distance(module: Module) -> Layer:
    norm = module.number("norm", 2)

    def run(pair: Sequence[Tensor]) -> Tensor:
        distances: Tensor = torch.linalg.vector_norm(pair[0] - pair[1], norm, dim=-1)
        return distances

    return run


@layer("CrossProduct", takes="table")
def _cross_product(_module: Module) -> Layer:
    return lambda table: torch.stack([(first * second).sum(-1) for first, second in combinations(table, 2)], -1)


@layer("MM", "InternalMM", takes="table")
def _matrix_product(module: Module) -> Layer:
    turn_first, turn_second = module.flag("transA", default=False), module.flag("transB", default=False)

    def run(pair: Sequence[Tensor]) -> Tensor:
        first, second = pair
        return (first.mT if turn_first else first) @ (second.mT if turn_second else second)

    return run


@layer("MV", takes="table")
def _matrix_vector(module: Module) -> Layer:
    turn = module.flag("trans", default=False)

    def run(pair: Sequence[Tensor]) -> Tensor:
        matrix, vector = pair
        return ((matrix.mT if turn else matrix) @ vector.unsqueeze(-1)).squeeze(-1)

    return run


@layer("Bilinear", takes="table")
def _bilinear(module: Module) -> Layer:
    weight, bias = module.weight, module.bias
    return lambda pair: F.bilinear(pair[0], pair[1], weight, bias)


@layer("MixtureTable", takes="table")
def _mixture(_module: Module) -> Layer:
    """Weigh experts by gates. Experts are a list, or are stacked along the axis after the gates' rows."""

    def run(pair: Sequence[Any]) -> Tensor:
        gates: Tensor = pair[0]
        experts: Any = pair[1]
        axis = gates.dim() - 1
        stacked: Tensor = torch.stack(list(experts), axis) if isinstance(experts, list) else experts
        return (stacked * gates.reshape(*gates.shape, *[1] * (stacked.dim() - gates.dim()))).sum(axis)

    return run


@layer("Index", takes="table")
def _index(module: Module) -> Layer:
    dimension = module.integer("dimension")
    return lambda pair: pair[0].index_select(axis_of(pair[0], dimension), pair[1].long().flatten() - 1)


@layer("JoinTable", "SparseJoinTable", takes="table")
def _join_table(module: Module) -> Layer:
    dimension, row_axes = module.integer("dimension"), module.integer("nInputDims", -1)
    return lambda table: torch.cat(list(table), axis_of(table[0], dimension, row_axes))


@layer("Pack", takes="table")
def _pack(module: Module) -> Layer:
    dimension = module.integer("dimension")

    def run(table: Tensor | Sequence[Tensor]) -> Tensor:
        parts = [table] if isinstance(table, Tensor) else list(table)
        return torch.stack(parts, axis_of(parts[0], dimension))

    return run


@layer("SelectTable", takes="table", gives="unknown")
def _select_table(module: Module) -> Layer:
    index = module.integer("index")
    return lambda table: table[index - 1]  # so -1 is the last but one, as in BigDL


@layer("NarrowTable", takes="table", gives="unknown")
def _narrow_table(module: Module) -> Layer:
    start, length = module.integer("offset") - 1, module.integer("length", 1)

    def run(table: Sequence[Any]) -> list[Any]:
        count = length if length >= 0 else len(table) - start + length + 1
        return list(table[start : start + count])

    return run


@layer("FlattenTable", takes="table", gives="unknown")
def _flatten_table(_module: Module) -> Layer:
    return flattened


def flattened(value: Any) -> list[Tensor]:
    """Return the tensors of a table and of its inner tables, in order. A tensor gives itself."""
    return [each for part in value for each in flattened(part)] if isinstance(value, list) else [value]
