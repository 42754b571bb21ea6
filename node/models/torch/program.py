"""Inputs, outputs and call of a PyTorch model, the same for every way of saving a model."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from cluster_serving.node.models.base import LoadOptions, ModelError, TensorSpec


class Program(msgspec.Struct, frozen=True):
    """A model that is called with tensors in the order of `inputs`.

    `inputs` and `outputs` are the specs of the backend. `casts` holds for each input the dtype that the model needs and numpy
    lacks, or `None`. `has_images` tells whether the model has two-dimensional convolutions.
    """

    call: Callable[[Sequence[torch.Tensor]], Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    casts: tuple[torch.dtype | None, ...]
    has_images: bool


def has_images(parameters: Iterable[torch.nn.Parameter]) -> bool:
    """Return whether weights of two-dimensional convolutions are among the parameters."""
    return any(each.dim() == 4 for each in parameters)


def declared(known: Sequence[TensorSpec], options: LoadOptions, path: Path) -> tuple[TensorSpec, ...]:
    """Return the inputs as configured. A shape that the configuration leaves open comes from `known`.

    Raises:
        ModelError: the configuration names inputs that the model lacks, or text.
    """
    stated = options.declared([spec.name for spec in known])
    for spec in stated.values():
        if spec.is_text:
            raise ModelError(f"{path}: modelInputs has text for {spec.name!r}, and PyTorch has only numbers.")
    pairs = [(stated.get(spec.name, spec), spec) for spec in known]
    return tuple(
        spec if spec.shape is not None else TensorSpec(spec.name, spec.dtype, own.shape, own.batch_axis)
        for spec, own in pairs
    )


def casts(inputs: Sequence[TensorSpec], needs: Sequence[torch.dtype | None]) -> tuple[torch.dtype | None, ...]:
    """Return the dtype that each input is cast to: bfloat16 for float32 if the model needs bfloat16, else `None`."""
    pairs = zip(inputs, needs, strict=True)
    return tuple(need if need == torch.bfloat16 and spec.dtype == "float32" else None for spec, need in pairs)
