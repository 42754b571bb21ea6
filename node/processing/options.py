"""Options for decoding entries and images into rows."""

from typing import Literal

import msgspec

from cluster_serving.client.wire.original.values import SparseLayout

# Pillow refuses larger images too. OpenCV's own limit is six times higher, and OpenCV reads OPENCV_IO_MAX_IMAGE_PIXELS when
# cv2 is imported. A process that sets the variable to MAX_PIXELS before the import saves the memory of decoding an image that
# is refused.
MAX_PIXELS = 178_956_970

LegacyClients = Literal["off", "0.7", "0.8", "nightly"]
"""Version of the clients before 0.9 that a job serves. `nightly`: a development version between 0.8 and 0.9."""


class DecodeOptions(msgspec.Struct, frozen=True):
    """Options for decoding entries into rows.

    `calls`: each record is a call of the model by itself. `sparse_layout`: layout of the indices of a
    sparse tensor with as many values as dimensions. `raw`: records go to the workers unchanged, for the user's own `preprocess`.
    `encrypted`: images are encrypted. `may_order`: several inputs are bound by order if no name is like any of the model's.
    `padded`: names of the inputs whose rows may have different lengths in a batch. `legacy`: clients whose records are read too.
    """

    calls: bool = False
    sparse_layout: SparseLayout = "ndim-major"
    raw: bool = False
    encrypted: bool = False
    may_order: bool = True
    padded: tuple[str, ...] = ()
    legacy: LegacyClients = "off"


class ImageOptions(msgspec.Struct, frozen=True):
    """Options for decoding images into rows of an input.

    `resize`: (height, width). `channels`: 1, 3 or 4, for an input whose shape leaves the number open (0: 3). `order`: "bgr" or
    "rgb". `layout`: "chw", "hwc", or "auto" (from the input's shape). `decoding`: "full", or "reduced" for JPEGs at 1/2, 1/4 or
    1/8 of their size where no side comes below that of a row. A value of a row is (pixel - mean) * scale. `mean` and `scale`
    have no number (0 and 1), a single number, or a number for each channel, in the channel order of the model.
    """

    resize: tuple[int, int] | None = None
    channels: int = 0
    order: Literal["bgr", "rgb"] = "bgr"
    layout: Literal["auto", "chw", "hwc"] = "auto"
    decoding: Literal["full", "reduced"] = "full"
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
