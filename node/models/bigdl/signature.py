"""Inputs and outputs of a model, as far as the definition tells."""

import re

from cluster_serving.node.models.base import LoadOptions, TensorSpec, numbered
from cluster_serving.node.models.bigdl.layers.container import inner
from cluster_serving.node.models.bigdl.registry import is_shell, kind_of
from cluster_serving.node.models.bigdl.tree import Module

_GRAPHS = ("StaticGraph", "Graph")
_MADE_UP = re.compile(r"|(?=.*\d)[0-9a-f]{5,8}")  # none, or a hash code


def inputs_of(root: Module, options: LoadOptions) -> tuple[TensorSpec, ...]:
    """Return the inputs of a model, or none if the model takes a table of any length. All numbers in BigDL are float32.

    Several inputs have the names that the user gave to the input nodes of a graph. Keras-style models know the shape of a row.

    Raises:
        ModelError: the configuration names other inputs.
    """
    entries = _entries(root)
    if not entries:
        return options.stated
    names = [each.given_name for each in entries]
    if len(names) == 1 or any(map(_MADE_UP.fullmatch, names)):
        names = numbered("input", len(entries))
    declared = options.declared(names)
    inputs: list[TensorSpec] = []
    for name, entry in zip(names, entries, strict=True):
        row = entry.row_shape("inputShape")
        shape = (None, *(dim if dim > 0 else None for dim in row)) if row else None
        inputs.append(declared.get(name, TensorSpec(name, "float32", shape)))
    return tuple(inputs)


def takes_table(root: Module) -> bool:
    """Return whether a model takes a table and not a tensor. A table may have a single input."""
    return len(_entries(root)) != 1


def outputs_of(module: Module) -> tuple[TensorSpec, ...]:
    """Return the outputs of a model, or none if only a run shows their number."""
    return tuple(TensorSpec(name, "float32", None) for name in numbered("output", _output_count(module) or 0))


def _entries(module: Module) -> list[Module]:
    """Return the modules that get an input each, or none if a single module gets all inputs as a table of any length."""
    kind = kind_of(module)
    if kind is not None and kind.takes == "table":
        return []
    if module.short_class in _GRAPHS and not is_shell(module):
        nodes = {node.name: node for node in module.children}
        entries = [nodes[name] for name in module.strings("inputNames")]
        return entries if len(entries) > 1 else _entries(entries[0])
    if is_shell(module):
        inside = inner(module)
        # The outermost shell that knows the shape stands for the modules inside.
        return [module] if inside is None or module.row_shape("inputShape") else _entries(inside)
    if module.short_class in ("Sequential", "Concat", "ConcatTable") and module.children:
        return _entries(module.children[0])
    return [module]


def _output_count(module: Module) -> int | None:
    inside = inner(module) if is_shell(module) else None
    if inside is not None:
        return _output_count(inside)
    if module.short_class == "Sequential" and module.children:
        return _output_count(module.children[-1])
    if module.short_class in _GRAPHS:
        nodes = {node.name: node for node in module.children}
        names = module.strings("outputNames")
        return len(names) if all(_output_count(nodes[name]) == 1 for name in names) else None
    kind = kind_of(module)
    return 1 if kind is not None and kind.gives == "tensor" else None
