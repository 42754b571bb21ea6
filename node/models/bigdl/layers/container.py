"""Containers, and the shells that the Keras-style API puts around layers."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cluster_serving.node.models.bigdl.axes import axis_of
from cluster_serving.node.models.bigdl.chain import chain
from cluster_serving.node.models.bigdl.registry import SHELL, Layer, build, build_all, layer, passed_on
from cluster_serving.node.models.bigdl.tree import Module, NotServed


def inner(module: Module) -> Module | None:
    """Return the module that a shell runs, or `None` if the shell passes its input on, as an input layer does."""
    if module.children:
        return module.children[0]
    return module.module("layer") or module.module("torchLayer")


@layer(SHELL, gives="unknown")
def _shell(module: Module) -> Layer:
    wrapped = inner(module)
    if wrapped is not None:
        return build(wrapped)
    if module.short_class in ("Input", "InputLayer"):
        return passed_on
    raise NotServed("")


@layer("Sequential")
def _sequential(module: Module) -> Layer:
    return chain(build_all(module.children))


@layer("Concat")
def _concat(module: Module) -> Layer:
    layers, dimension = build_all(module.children), module.integer("dimension")

    def run(value: Any) -> Tensor:
        parts = [each(value) for each in layers]
        return torch.cat(parts, axis_of(parts[0], dimension))

    return run


@layer("ConcatTable", gives="unknown")
def _concat_table(module: Module) -> Layer:
    layers = build_all(module.children)
    return lambda value: [each(value) for each in layers]


@layer("ParallelTable", takes="table", gives="unknown")
def _parallel_table(module: Module) -> Layer:
    layers = build_all(module.children)
    return lambda table: [each(value) for each, value in zip(layers, table, strict=True)]


@layer("MapTable", takes="table", gives="unknown")
def _map_table(module: Module) -> Layer:
    mapped = build(_child(module, "module"))
    return lambda table: [mapped(value) for value in table]


@layer("Bottle")
def _bottle(module: Module) -> Layer:
    bottled, row_axes = build(_child(module, "module")), module.integer("nInputDim", 2)

    def run(x: Tensor) -> Tensor:
        leading = x.shape[: max(1, x.dim() - row_axes + 1)]
        out: Tensor = bottled(x.flatten(0, len(leading) - 1))
        return out.reshape(*leading, *out.shape[1:])

    return run


@layer("TimeDistributed", "InternalTimeDistributed")
def _time_distributed(module: Module) -> Layer:
    each_step = build(_child(module, "layer"))
    masked = module.flag("maskZero", default=False)

    def run(x: Tensor) -> Tensor:
        folded: Tensor = each_step(x.flatten(0, 1))
        steps = folded.reshape(*x.shape[:2], *folded.shape[1:])
        if not masked:
            return steps
        # The output of a step is zero if the input of the step is all zeros.
        present = (x.flatten(2) != 0).any(-1)
        return steps * present.reshape(*present.shape, *[1] * (steps.dim() - 2))

    return run


def _child(module: Module, key: str) -> Module:
    children: Sequence[Module] = module.children
    found = children[0] if children else module.module(key)
    if found is None:
        raise NotServed("holds no layer")
    return found
