"""Graphs of layers, put in an order that can run."""

from collections import Counter
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from cluster_serving.node.models.bigdl.chain import fused
from cluster_serving.node.models.bigdl.registry import Layer, build, layer
from cluster_serving.node.models.bigdl.tree import Module, NotServed

_WHOLE = -1

# Nodes by name: the layer and its sources. A source is a node's output by name or an input by number, whole or an element.
_Nodes = dict[str, tuple[Layer, list[tuple[str | int, int]]]]


class _Step(msgspec.Struct, frozen=True):
    """A node: its layer, its sources (value and element), and the values that no later step takes."""

    run: Layer
    sources: tuple[tuple[int, int], ...]
    last_uses: tuple[int, ...]


class LayerGraph:
    """A graph as a list of steps. Values are numbered: first the inputs, then the results of the steps."""

    def __init__(self, module: Module) -> None:
        outputs = module.strings("outputNames")
        inputs = module.strings("inputNames")
        if not inputs or not outputs:
            raise NotServed("is a graph without inputs or outputs")
        nodes = _fused(_nodes(module, inputs, outputs), outputs)
        self._input_count = len(inputs)
        numbers: dict[str | int, int] = {at: at for at in range(len(inputs))}
        numbers |= {name: at for at, name in enumerate(nodes, len(inputs))}
        sources = [tuple((numbers[name], element) for name, element in taken) for _, taken in nodes.values()]
        self._outputs = [numbers[name] for name in outputs]
        last_uses = {at: step for step, taken in enumerate(sources) for at, _ in taken}
        done: dict[int, tuple[int, ...]] = {}  # by step: the numbers of the values that no later step takes
        for at, step in last_uses.items():
            if at not in self._outputs:
                done[step] = (*done.get(step, ()), at)
        self._steps = [
            _Step(run, taken, done.get(at, ()))
            for at, ((run, _), taken) in enumerate(zip(nodes.values(), sources, strict=True))
        ]

    def __call__(self, value: Any) -> Any:
        """Run all steps. Several inputs are given as a list of values, and several outputs are returned as a list."""
        values: list[Any] = [value] if self._input_count == 1 else list(value)
        for step in self._steps:
            taken = [values[at] if element == _WHOLE else values[at][element - 1] for at, element in step.sources]
            values.append(step.run(taken[0] if len(taken) == 1 else taken))
            for at in step.last_uses:  # gives the memory back before the next step asks for memory
                values[at] = None
        outputs = [values[at] for at in self._outputs]
        return outputs[0] if len(outputs) == 1 else outputs


@layer("StaticGraph", "LayerGraph")
def _static_graph(module: Module) -> Layer:
    return LayerGraph(module)


@layer("DynamicGraph")
def _dynamic_graph(_module: Module) -> Layer:
    raise NotServed("has control flow, which is not served: save the model as a static graph")


def _nodes(module: Module, inputs: list[str], outputs: list[str]) -> _Nodes:
    """Return the nodes that the outputs need, each node after its predecessors."""
    modules = {each.name: each for each in module.children}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    seen: set[str] = set()
    waiting = [*inputs, *outputs]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in modules:
            raise NotServed(f"is a graph without its node {name!r}")
        sorter.add(name, *modules[name].predecessors)
        waiting += modules[name].predecessors
    try:
        ordered = list(sorter.static_order())
    except CycleError as error:
        raise NotServed("is a graph with a cycle") from error
    nodes: _Nodes = {}
    for name in ordered:
        edges = module.edges(f"{name}_edges")
        taken: list[tuple[str | int, int]] = [(each, edges.get(each, _WHOLE)) for each in modules[name].predecessors]
        nodes[name] = (build(modules[name]), [(inputs.index(name), _WHOLE)] if name in inputs else taken)
    return nodes


def _fused(nodes: _Nodes, outputs: list[str]) -> _Nodes:
    """Fuse two nodes into one if the output of the first node goes to the second node alone."""
    uses = Counter(name for _, taken in nodes.values() for name, _ in taken)
    uses.update(outputs)
    kept: _Nodes = {}
    for name, (run, taken) in nodes.items():
        source, element = taken[0] if len(taken) == 1 else (-1, 0)
        single = None
        if isinstance(source, str) and element == _WHOLE and uses[source] == 1:
            single = fused(kept[source][0], run)
        kept[name] = (run, taken) if single is None else (single, kept.pop(str(source))[1])
    return kept
