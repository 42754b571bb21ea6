"""Conversion of arrays to tensors and back, and names for the outputs of a PyTorch model."""

import dataclasses
from collections import Counter
from collections.abc import Generator, Mapping
from itertools import count
from typing import Any, cast

import torch

from cluster_serving.node.models.base import Array, ModelError, TensorSpec


def to_tensor(array: Array, dtype: torch.dtype | None, channels_last: bool) -> torch.Tensor:
    """Return a copy of the array as a tensor, because a model may work in place.

    Args:
        array: any numbers.
        dtype: dtype of the tensor, which numpy may lack. `None`: the array's own.
        channels_last: whether images, floating-point arrays of four dimensions, are laid out with the channels last.
    """
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())  # torch warns of read-only memory
    is_image = channels_last and tensor.dim() == 4 and tensor.is_floating_point()
    layout = torch.channels_last if is_image else torch.preserve_format
    return tensor.to(dtype=dtype or tensor.dtype, memory_format=layout, copy=True)


def to_array(name: str, tensor: torch.Tensor) -> Array:
    """Return the values of a tensor, in the tensor's memory if numpy can read it. bfloat16, unknown to numpy, becomes float32.

    Raises:
        ModelError: the tensor is sparse or quantized.
    """
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise ModelError(
            f"output {name!r} is a sparse or quantized tensor; let the model return its to_dense() or dequantize()"
        )
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy(force=True)


def to_spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    """Return the spec of a tensor of an exported program. A dimension that is a symbol is free."""
    dims: Any = tensor.shape  # of int and torch.SymInt, contrary to the stubs
    shape = tuple(dim if isinstance(dim, int) else None for dim in dims)
    return TensorSpec(name, numpy_dtype(tensor.dtype), shape, 0 if shape else None)


def numpy_dtype(dtype: torch.dtype) -> str:
    """Return the name of the numpy dtype that holds values of a torch dtype."""
    return "float32" if dtype == torch.bfloat16 else str(dtype).removeprefix("torch.")


def by_name(result: Any) -> dict[str, torch.Tensor]:
    """Return the tensors in a model's result by name, in order.

    Tensors in a dict, a named tuple or a dataclass are named by its keys. All other tensors are called `output`. Tensors of the
    same name get numbers that make names of their own. `None` is left out. A list of dicts has a dict for each row, as detectors
    give it: the values are stacked.

    Raises:
        ModelError: the result holds values that are no tensors, or the rows of a list have different shapes.
    """
    rows: list[Any] = result if isinstance(result, list) else []
    if rows and all(isinstance(row, Mapping) for row in rows):
        try:
            result = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
        except (KeyError, RuntimeError, TypeError) as error:
            raise ModelError(f"the model returns a list of dicts that differ: {str(error).splitlines()[0]}") from error
    leaves = list(_leaves("output", result))
    counts = Counter(word for word, _ in leaves)
    named: dict[str, torch.Tensor] = {}
    numbers = {word: count(1) for word in counts}
    for word, tensor in leaves:
        name = word
        while counts[word] > 1 and (name in counts or name in named):
            name = f"{word}{next(numbers[word])}"
        named[name] = tensor
    return named


def _leaves(word: str, value: Any) -> Generator[tuple[str, torch.Tensor], None, None]:
    if isinstance(value, torch.Tensor):
        yield word, value
        return
    fields: Mapping[Any, Any] | None = None
    if isinstance(value, Mapping):
        fields = value
    elif hasattr(value, "_asdict"):
        fields = value._asdict()
    elif dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if fields is not None:
        for key, inner in fields.items():
            yield from _leaves(str(key), inner)
    elif isinstance(value, (list, tuple)):
        for inner in cast("list[Any]", value):
            yield from _leaves(word, inner)
    elif value is not None:
        raise ModelError(f"the model returns a {type(value).__name__} as {word!r}, and only tensors can be served")
