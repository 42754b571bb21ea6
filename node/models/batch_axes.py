"""Batch axes of a model whose free dimensions have names, as in ONNX."""

import re
from collections.abc import Sequence

_BATCH = re.compile(r"n|b|bs|.*batch.*", re.IGNORECASE)
_LETTERS = 2  # so short a name may mean anything, and counts only where a batch dimension usually stands
# Names that exporters make up, a new name for each dimension: equal names still mean equal sizes, different names mean nothing.
_MADE_UP = re.compile(r"unk.*|dyn.*|.*_?dim_?.*|s\d+|\W*\d*|None", re.IGNORECASE)

Dims = Sequence[int | str | None]
"""Dimensions of a tensor: a size, the name of a free dimension, or `None` for a free dimension without a name."""


def axes_of_inputs(inputs: Sequence[Dims]) -> list[int | None]:
    """Return the batch axis of each input. `None`: the input has none.

    The batch dimension is the dimension with a name such as `batch` or `N`, or with the one name that all inputs share if the
    name stands in front anywhere, or else the first dimension.
    """
    batch = _names(inputs)
    axes: list[int | None] = []
    for dims in inputs:
        first = 0 if dims and not batch and not isinstance(dims[0], str) else None
        axes.append(next((at for at, dim in enumerate(dims) if dim in batch), first))
    return axes


def axes_of_outputs(
    outputs: Sequence[Dims], inputs: Sequence[Dims], *, rows_elsewhere: bool = False
) -> list[int | None]:
    """Return the batch axis of each output. `None`: the output has none, or does not tell.

    A first dimension with a name of its own may be the batch, because exporters often do not see that it is. It is not the batch
    if the batch of the inputs is a number. If an input has `rows_elsewhere` than in front, so may an output with several free
    dimensions, and only a name of the batch tells.
    """
    batch = _names(inputs)
    is_number = all(isinstance(dims[0], int) for dims in inputs if dims)
    axes: list[int | None] = []
    for dims in outputs:
        axis = next((at for at, dim in enumerate(dims) if dim in batch), 0)
        named = bool(dims) and isinstance(dims[axis], str) and dims[axis] not in batch
        free = sum(not isinstance(dim, int) for dim in dims)
        unclear = rows_elsewhere and free > 1 and batch.isdisjoint(dims)
        axes.append(None if not dims or (named and is_number) or unclear else axis)
    return axes


def _names(inputs: Sequence[Dims]) -> set[str]:
    """Return the names of the batch dimension."""
    named = [[dim for dim in dims if isinstance(dim, str)] for dims in inputs if dims]
    front = {dims[0] for dims in inputs if dims and isinstance(dims[0], str)}
    told = {name for names in named for name in names if _BATCH.fullmatch(name)}
    told = {name for name in told if len(name) > _LETTERS or name in front}
    if told or not named:
        return told
    shared = {name for name in front if all(names.count(name) == 1 for names in named)}
    if len(named) > 1 and len(shared) == 1:
        return shared
    return {name for name in front if _MADE_UP.fullmatch(name)} or (front if len(front) == 1 else set())
