"""Sums, means and extremes along an axis."""

from collections.abc import Callable

import torch
from torch import Tensor

from cluster_serving.node.models.bigdl.axes import axis_of
from cluster_serving.node.models.bigdl.registry import Layer, layer
from cluster_serving.node.models.bigdl.tree import Module


def _reduction(module: Module, reduce: Callable[..., Tensor]) -> Layer:
    dimension, row_axes = module.integer("dimension", 1), module.integer("nInputDims", -1)
    squeeze = module.flag("squeeze", default=True)

    def run(x: Tensor) -> Tensor:
        # The only axis of a tensor is kept.
        return reduce(x, axis_of(x, dimension, row_axes), keepdim=not squeeze or x.dim() == 1)

    return run


@layer("Sum")
def _sum(module: Module) -> Layer:
    return _reduction(module, torch.mean if module.flag("sizeAverage", default=False) else torch.sum)


@layer("Mean")
def _mean(module: Module) -> Layer:
    return _reduction(module, torch.mean)


@layer("Max")
def _max(module: Module) -> Layer:
    return _extreme(module, torch.amax)


@layer("Min")
def _min(module: Module) -> Layer:
    return _extreme(module, torch.amin)


@layer("InternalMax")
def _max_or_index(module: Module) -> Layer:
    if module.flag("returnValue", default=True):
        return _extreme(module, torch.amax)
    return _extreme(module, _index_of_maximum)


def _index_of_maximum(x: Tensor, axis: int, *, keepdim: bool) -> Tensor:
    return x.argmax(axis, keepdim=keepdim) + 1.0


def _extreme(module: Module, reduce: Callable[..., Tensor]) -> Layer:
    dimension, row_axes = module.integer("dim", 1), module.integer("numInputDims", -1)
    return lambda x: reduce(x, axis_of(x, dimension, row_axes), keepdim=x.dim() == 1)
