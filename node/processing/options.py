"""Options of turning entries and images into rows."""

from typing import Literal

import msgspec

from cluster_serving.client.wire.original.values import SparseLayout


class DecodeOptions(msgspec.Struct, frozen=True):
    """How entries become rows.

    `already_batched`: every tensor has the batch dimension. `sparse_layout`: how to read the indices of a sparse tensor with as
    many values as dimensions. `raw`: records go to the workers as they are, for the user's own `preprocess`. `encrypted`:
    images are encrypted.
    """

    already_batched: bool = False
    sparse_layout: SparseLayout = "ndim-major"
    raw: bool = False
    encrypted: bool = False


class ImageOptions(msgspec.Struct, frozen=True):
    """How encoded images become rows of an input.

    `resize` to (height, width). `channels`: 1, 3 or 4, where the input's shape leaves it open (0: 3). `order` "bgr" or "rgb".
    `layout` "chw", "hwc", or "auto": from the input's shape. A value is (pixel - mean) * scale; `mean` and `scale` have no
    number (0 and 1), one, or one a channel, in the channel order of the model.
    """

    resize: tuple[int, int] | None = None
    channels: int = 0
    order: Literal["bgr", "rgb"] = "bgr"
    layout: Literal["auto", "chw", "hwc"] = "auto"
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
