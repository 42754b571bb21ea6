"""Finds in a TorchScript graph which inputs cannot be floating-point numbers."""

import re
from typing import Any

import torch

# Operator and position of an argument that holds indices or truth values.
_DTYPES = {
    ("aten::embedding", 1): "int64",
    ("aten::embedding_bag", 1): "int64",
    ("aten::embedding_bag", 2): "int64",
    ("aten::gather", 2): "int64",
    ("aten::index", 1): "int64",
    ("aten::index_select", 2): "int64",
    ("aten::masked_fill", 1): "bool",
    ("aten::one_hot", 0): "int64",
    ("aten::take", 1): "int64",
    ("aten::where", 0): "bool",
}
# Operators whose results have the dtype of their first argument.
_SAME_DTYPE = re.compile(
    r"aten::(__getitem__|add|cat|chunk|clamp|clone|contiguous|detach|expand|flatten|masked_fill|narrow|permute|remainder|repeat|reshape|"
    r"select|slice|split|squeeze|stack|sub|t|transpose|unbind|unflatten|unsqueeze|view)"
    r"|prim::(ListConstruct|ListUnpack|unchecked_cast)"
)


def dtypes_of_inputs(model: torch.jit.ScriptModule) -> dict[int, str]:
    """The dtype of each argument of `forward` that is used for indices or as a mask; by position, `self` being 0."""
    graph: Any = model.inlined_graph
    origins = {value.debugName(): {at} for at, value in enumerate(graph.inputs())}
    found: dict[int, str] = {}
    _walk(graph, origins, found)
    return found


def _walk(block: Any, origins: dict[str, set[int]], found: dict[int, str]) -> None:
    """Follow the inputs through a block; `origins` holds the inputs whose values each name carries on, unchanged in dtype."""
    for node in block.nodes():
        kind = node.kind()
        arguments = [origins.get(value.debugName(), set()) for value in node.inputs()]
        for at, inputs in enumerate(arguments):
            dtype = _DTYPES.get((kind, at))
            if dtype is not None:
                found.update(dict.fromkeys(inputs, dtype))
        carried = arguments if kind == "prim::ListConstruct" else arguments[:1]
        if _SAME_DTYPE.fullmatch(kind):
            for output in node.outputs():
                origins[output.debugName()] = set().union(*carried)
        for inner in node.blocks():
            _walk(inner, origins, found)
            if kind == "prim::If":  # it gives what its branches end with
                for value, output in zip(inner.outputs(), node.outputs(), strict=True):
                    origins.setdefault(output.debugName(), set()).update(origins.get(value.debugName(), set()))
