"""Axes in BigDL's way of counting."""

from collections.abc import Callable

from torch import Tensor


def axis_of(value: Tensor, dimension: int, row_axes: int = -1) -> int:
    """The axis, from 0, that BigDL calls `dimension`.

    Args:
        value: the layer's input, or one of its inputs.
        dimension: counts from 1; negative ones from the end.
        row_axes: how many axes a row has, if the layer was told: an input with one more is a batch, and a positive
            dimension is one of a row.
    """
    if dimension < 0:
        return value.dim() + dimension
    return dimension if 0 < row_axes == value.dim() - 1 else dimension - 1


def index_of(length: int, index: int) -> int:
    """The index, from 0, that BigDL calls `index` along an axis of such a length."""
    return length + index if index < 0 else index - 1


def channels_first(
    function: Callable[[Tensor], Tensor], *, channels_last: bool, axes: int = 2
) -> Callable[[Tensor], Tensor]:
    """A function of images NCHW for those of a layer that may have the channels last; `axes` without the channels."""
    if not channels_last:
        return function
    channel = -1 - axes
    return lambda images: function(images.movedim(-1, channel)).movedim(channel, -1)
