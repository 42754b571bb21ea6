"""Axes in BigDL's way of counting."""

from collections.abc import Callable

from torch import Tensor


def axis_of(value: Tensor, dimension: int, row_axes: int = -1) -> int:
    """Return the axis, from 0, that BigDL calls `dimension`.

    Args:
        value: an input of the layer.
        dimension: counts from 1. Negative numbers count from the end.
        row_axes: number of axes of a row, if the layer was told. An input with one more axis is a batch, and a positive
            dimension then counts the axes of a row.
    """
    if dimension < 0:
        return value.dim() + dimension
    return dimension if 0 < row_axes == value.dim() - 1 else dimension - 1


def index_of(length: int, index: int) -> int:
    """Return the index, from 0, that BigDL calls `index` along an axis of `length`."""
    return length + index if index < 0 else index - 1


def channels_first(
    function: Callable[[Tensor], Tensor], *, channels_last: bool, axes: int = 2
) -> Callable[[Tensor], Tensor]:
    """Wrap a function of NCHW images for a layer that may have channels last. `axes` counts neither batch nor channels."""
    if not channels_last:
        return function
    channel = -1 - axes
    return lambda images: function(images.movedim(-1, channel)).movedim(channel, -1)
