"""What a PyTorch model takes and gives, and how it is called: the same for each way of saving one."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from cluster_serving.node.models.base import LoadOptions, ModelError, TensorSpec


class Program(msgspec.Struct, frozen=True):
    """A model, called with its tensors in the order of `inputs`.

    `inputs` and `outputs` are those of the backend. `casts` says, input by input, which dtype the model needs where numpy
    has not got it. `has_images` tells whether two-dimensional convolutions are part of it.
    """

    call: Callable[[Sequence[torch.Tensor]], Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    casts: tuple[torch.dtype | None, ...]
    has_images: bool


def has_images(parameters: Iterable[torch.nn.Parameter]) -> bool:
    """Whether weights of two-dimensional convolutions are among the parameters."""
    return any(each.dim() == 4 for each in parameters)


def declared(known: Sequence[TensorSpec], options: LoadOptions, path: Path) -> tuple[TensorSpec, ...]:
    """The inputs as the configuration has them; a shape that it leaves open is the one that is known.

    Raises:
        ModelError: the configuration names others, or text.
    """
    stated = options.declared([spec.name for spec in known])
    for spec in stated.values():
        if spec.is_text:
            raise ModelError(f"{path}: modelInputs has text for {spec.name!r}, and PyTorch has only numbers.")
    pairs = [(stated.get(spec.name, spec), spec.shape) for spec in known]
    return tuple(TensorSpec(spec.name, spec.dtype, spec.shape or shape) for spec, shape in pairs)


def casts(inputs: Sequence[TensorSpec], needs: Sequence[torch.dtype | None]) -> tuple[torch.dtype | None, ...]:
    """For each input the dtype that it is cast to: bfloat16 for float32 where the model needs that."""
    pairs = zip(inputs, needs, strict=True)
    return tuple(need if need == torch.bfloat16 and spec.dtype == "float32" else None for spec, need in pairs)
