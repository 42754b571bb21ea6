"""Search of a TorchScript graph for inputs that cannot be floating-point numbers."""

import re
from typing import Any

import torch

# Operator and position of an argument with indices or truth values. In-place operators, as `masked_fill_`, count as well.
_DTYPES = {
    ("aten::__and__", 0): "bool",
    ("aten::__and__", 1): "bool",
    ("aten::__or__", 0): "bool",
    ("aten::__or__", 1): "bool",
    ("aten::bitwise_and", 0): "bool",
    ("aten::bitwise_and", 1): "bool",
    ("aten::bitwise_not", 0): "bool",
    ("aten::bitwise_or", 0): "bool",
    ("aten::bitwise_or", 1): "bool",
    ("aten::embedding", 1): "int64",
    ("aten::embedding_bag", 1): "int64",
    ("aten::embedding_bag", 2): "int64",
    ("aten::gather", 2): "int64",
    ("aten::index", 1): "int64",
    ("aten::index_select", 2): "int64",
    ("aten::masked_fill", 1): "bool",
    ("aten::one_hot", 0): "int64",
    ("aten::scatter", 2): "int64",
    ("aten::scatter_add", 2): "int64",
    ("aten::take", 1): "int64",
    ("aten::where", 0): "bool",
}
# Operators with results in the dtype of the first argument.
_SAME_DTYPE = re.compile(
    r"aten::(__getitem__|add|cat|chunk|clamp|clone|contiguous|detach|expand|flatten|masked_fill|mul|narrow|permute|remainder|repeat|"
    r"reshape|select|slice|split|squeeze|stack|sub|t|transpose|unbind|unflatten|unsqueeze|view)"
    r"|prim::(ListConstruct|ListUnpack|unchecked_cast)"
)
# Operators of _SAME_DTYPE with only whole numbers as arguments if the result is a whole number.
_SYMMETRIC = ("aten::add", "aten::mul", "aten::sub", "prim::ListConstruct")


def dtypes_of_inputs(model: torch.jit.ScriptModule) -> dict[int, str]:
    """Return the dtype of each argument of `forward` that is used for indices or as a mask, by position. `self` is 0."""
    graph: Any = model.inlined_graph
    origins = {value.debugName(): {at} for at, value in enumerate(graph.inputs())}
    found: dict[int, str] = {}
    _walk(graph, origins, found)
    return found


def _walk(block: Any, origins: dict[str, set[int]], found: dict[int, str]) -> None:
    """Follow the inputs through a block. `origins` maps a name to the inputs that reach it with an unchanged dtype."""
    for node in block.nodes():
        kind = node.kind() if node.kind().endswith("__") else node.kind().removesuffix("_")
        arguments = [origins.get(value.debugName(), set()) for value in node.inputs()]
        for at, inputs in enumerate(arguments):
            dtype = _DTYPES.get((kind, at))
            if dtype is not None:
                found.update(dict.fromkeys(inputs, dtype))
        carried = arguments if kind in _SYMMETRIC else arguments[:1]
        if _SAME_DTYPE.fullmatch(kind):
            for output in node.outputs():
                origins[output.debugName()] = set().union(*carried)
        for inner in node.blocks():
            _walk(inner, origins, found)
            if kind == "prim::If":  # the results of the branches are the results of the If
                for value, output in zip(inner.outputs(), node.outputs(), strict=True):
                    origins.setdefault(output.debugName(), set()).update(origins.get(value.debugName(), set()))
