"""Recurrent layers. A cell brings the complete network of a step, from `[x, state]` to `[output, next state]`."""

from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import Tensor

from cluster_serving.node.models.bigdl.registry import Layer, build, layer, passed_on
from cluster_serving.node.models.bigdl.tree import Module, NotServed

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


class Cell(msgspec.Struct, frozen=True):
    """A recurrent cell.

    `step` takes the input of a step and a state. `start` takes the same input and gives the state before the first step.
    """

    step: Step
    start: Callable[[Tensor], Any]


@layer("Recurrent", "InternalRecurrent")
def _recurrent(module: Module) -> Layer:
    if module.flag("maskZero", default=False):
        raise NotServed("masks steps of zeros, which is not served")
    before, topology = _parts(module)
    prepare = passed_on if before is None else build(before)
    cell = _cell(topology)

    def run(x: Tensor) -> Tensor:
        steps = prepare(x).unbind(1)
        state = cell.start(steps[0])
        outputs: list[Tensor] = []
        for each in steps:
            output, state = cell.step(each, state)
            outputs.append(output)
        return torch.stack(outputs, 1)

    return run


@layer("RecurrentDecoder")
def _decoder(module: Module) -> Layer:
    """Build a decoder that feeds each output back as the next input."""
    length = module.integer("seqLength")
    cell = _cell(_parts(module)[1], with_preparation=True)

    def run(x: Tensor) -> Tensor:
        state = cell.start(x)
        outputs: list[Tensor] = []
        for _ in range(length):
            x, state = cell.step(x, state)
            outputs.append(x)
        return torch.stack(outputs, 1)

    return run


@layer("BiRecurrent")
def _bidirectional(module: Module) -> Layer:
    both = module.module("birnn")
    if both is None:
        raise NotServed("lacks the attribute 'birnn'")
    return build(both)


def _parts(module: Module) -> tuple[Module | None, Module]:
    """Return the module that prepares all steps at once, or `None`, and the cell."""
    topology = module.module("topology")
    if topology is not None:
        return module.module("preTopology"), topology
    match module.children:
        case [topology]:
            return None, topology
        case [before, topology]:
            return before, topology
        case _:
            raise NotServed("holds no cell")


def _cell(module: Module, *, with_preparation: bool = False) -> Cell:
    if module.short_class == "MultiRNNCell":
        return _stacked([_cell(each, with_preparation=True) for each in module.modules("cells")])
    network = module.module("cell")
    if network is None:
        raise NotServed(f"has a cell {module.java_class} without its network, which is not served")
    run = build(network)
    preparation = module.module("preTopology")
    prepared = with_preparation or module.flag("includePreTopology", default=False)
    prepare = build(preparation) if prepared and preparation is not None else passed_on

    def step(x: Tensor, state: Any) -> tuple[Tensor, Any]:
        output, following = run([prepare(x), state])
        return output, following

    size = module.integer("hiddenSize", 0) or module.integer("outputSize")
    # An LSTM keeps an output and a memory. All other cells keep an output.
    states = 2 if "LSTM" in module.short_class else 1

    def start(x: Tensor) -> Any:
        zeros = [x.new_zeros(x.shape[0], size, *x.shape[2:]) for _ in range(states)]
        return zeros if states > 1 else zeros[0]

    return Cell(step, start)


def _stacked(cells: list[Cell]) -> Cell:
    """Stack cells. Each cell takes the output of the cell before."""

    def step(x: Tensor, states: Any) -> tuple[Tensor, Any]:
        following: list[Any] = []
        for cell, state in zip(cells, states, strict=True):
            x, after = cell.step(x, state)
            following.append(after)
        return x, following

    return Cell(step, lambda x: [cell.start(x) for cell in cells])
