"""Images and sequences cropped, padded or resized."""

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from cluster_serving.node.models.bigdl.axes import channels_first
from cluster_serving.node.models.bigdl.registry import Layer, layer
from cluster_serving.node.models.bigdl.tree import Module


@layer("SpatialZeroPadding")
def _zero_padding(module: Module) -> Layer:
    sides = [module.integer(f"pad{side}", 0) for side in ("Left", "Right", "Top", "Bottom")]
    return lambda x: F.pad(x, sides)


@layer("Cropping2D")
def _cropping_2d(module: Module) -> Layer:
    return _cropping(module, "heightCrop", "widthCrop")


@layer("Cropping3D")
def _cropping_3d(module: Module) -> Layer:
    return _cropping(module, "dim1Crop", "dim2Crop", "dim3Crop")


def _cropping(module: Module, *keys: str) -> Layer:
    amounts = [-amount for key in reversed(keys) for amount in module.integers(key)]
    last = module.channels_last("dataFormat")
    return channels_first(lambda x: F.pad(x, amounts), channels_last=last, axes=len(keys))


@layer("UpSampling1D")
def _up_sampling_1d(module: Module) -> Layer:
    length = module.integer("length")
    return lambda x: x.repeat_interleave(length, -2)


@layer("UpSampling2D")
def _up_sampling_2d(module: Module) -> Layer:
    rows, columns = module.integers("size")
    return channels_first(
        lambda x: x.repeat_interleave(rows, -2).repeat_interleave(columns, -1), channels_last=module.channels_last()
    )


@layer("UpSampling3D")
def _up_sampling_3d(module: Module) -> Layer:
    depth, rows, columns = module.integers("size")
    return lambda x: x.repeat_interleave(depth, -3).repeat_interleave(rows, -2).repeat_interleave(columns, -1)


@layer("ResizeBilinear")
def _resize_bilinear(module: Module) -> Layer:
    size = (module.integer("outputHeight"), module.integer("outputWidth"))
    corners = module.flag("alignCorners", default=False)

    def run(x: Tensor) -> Tensor:
        if corners:
            return F.interpolate(x, size, mode="bilinear", align_corners=True)
        return _stretched(_stretched(x, -2, size[0]), -1, size[1])

    return channels_first(run, channels_last=module.channels_last("dataFormat"))


def _stretched(x: Tensor, axis: int, size: int) -> Tensor:
    """Resize an axis. Pixel i lies at i * old / new, without the shift by half a pixel that torch makes."""
    old = x.shape[axis]
    place = torch.arange(size) * (old / size)
    low = place.long()
    high = (low + 1).clamp(max=old - 1)
    share = (place - low).reshape(-1, *[1] * (-1 - axis))
    return torch.lerp(x.index_select(axis, low), x.index_select(axis, high), share)
