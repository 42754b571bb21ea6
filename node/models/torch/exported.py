"""Preparation of exported programs, which state the shapes and dtypes of all inputs and outputs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from cluster_serving.node.models.base import LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.torch.program import Program, casts, declared, has_images
from cluster_serving.node.models.torch.values import by_name, to_spec


def exported_program(program: ExportedProgram, options: LoadOptions, path: Path) -> Program:
    """Prepare an exported program for inference. Arguments that were no tensors at the export keep their values of the export.

    Raises:
        ModelError: an input or output is not a tensor, or the configuration does not fit the inputs.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    leaves: list[Any] = []
    taken: dict[int, torch.Tensor] = {}  # by the position in `leaves`
    known: list[TensorSpec] = []
    for each in program.graph_signature.input_specs:
        if each.kind != InputKind.USER_INPUT:
            continue
        value = values[each.arg.name]
        if isinstance(each.arg, TensorArgument):
            taken[len(leaves)] = value
            known.append(to_spec(each.arg.name, value))
        elif not isinstance(each.arg, ConstantArgument):
            raise ModelError(
                f"{path}: {each.arg.name!r} is no tensor, and only tensors can be served; export the model with a constant in "
                "its place."
            )
        leaves.append(each.arg.value if isinstance(each.arg, ConstantArgument) else None)
    if not known:
        raise ModelError(f"{path} takes no tensor, and only tensors can be served.")
    module = program.module()
    structure: Any = program.call_spec.in_spec

    def call(tensors: Sequence[torch.Tensor]) -> Any:
        filled = list(leaves)
        for position, tensor in zip(taken, tensors, strict=True):
            filled[position] = tensor
        arguments, keywords = structure.unflatten(filled)
        return module(*arguments, **keywords)

    inputs = declared(known, options, path)
    needs = [value.dtype for value in taken.values()]
    outputs = _outputs(program, values, path)
    return Program(call, inputs, outputs, casts(inputs, needs), has_images(program.parameters()))


def _outputs(program: ExportedProgram, values: dict[str, Any], path: Path) -> tuple[TensorSpec, ...]:
    leaves = [
        values[each.arg.name] if isinstance(each.arg, TensorArgument) else getattr(each.arg, "value", each.arg)
        for each in program.graph_signature.output_specs
        if each.kind == OutputKind.USER_OUTPUT
    ]
    structure: Any = program.call_spec.out_spec
    try:
        outputs = by_name(structure.unflatten(leaves))
    except ModelError as error:
        raise ModelError(f"{path}: {error}.") from error
    return tuple(to_spec(name, tensor) for name, tensor in outputs.items())
