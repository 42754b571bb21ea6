"""Convolutions. Weights are brought to torch's layout once: output channels, input channels of a group, kernel."""

from typing import Any

import msgspec
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from cluster_serving.node.models.bigdl.axes import channels_first
from cluster_serving.node.models.bigdl.chain import chain
from cluster_serving.node.models.bigdl.layers.normalization import BatchNormalization
from cluster_serving.node.models.bigdl.registry import Layer, layer
from cluster_serving.node.models.bigdl.tree import Module, NotServed
from cluster_serving.node.models.bigdl.window import SPATIAL, VOLUMETRIC, Window

_FUNCTIONS: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_POINT = Window((1, 1), (1, 1), (0, 0), (1, 1))
_FASTEST = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}


class Convolution(msgspec.Struct, frozen=True, eq=False):
    """A convolution over the last axes of an input with or without a batch axis, with or without a ReLU at the end."""

    window: Window
    weight: Tensor
    bias: Tensor | None
    groups: int = 1
    channels_last: bool = False
    relu: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """Run the convolution. The result is a new tensor."""
        axes = len(self.window.kernel)
        if self.channels_last:
            x = x.movedim(-1, -1 - axes)
        pad: int | tuple[int, ...] = self.window.pad
        if not self.window.is_plain_convolution:
            x, pad = self.window.padded(x), 0
        out: Tensor = _FUNCTIONS[axes](
            x, self.weight, self.bias, self.window.stride, pad, self.window.dilation, self.groups
        )
        if self.relu:  # in place: SqueezeNet takes 0.18 s instead of 0.20
            out.relu_()
        return out.movedim(-1 - axes, -1) if self.channels_last else out

    def absorb(self, following: Layer) -> "Convolution | None":
        """Absorb a ReLU, or a batch normalization, which scales and shifts channels and goes into the weights."""
        if self.relu:
            return None
        if following is torch.relu:
            return msgspec.structs.replace(self, relu=True)
        if isinstance(following, BatchNormalization) and following.channels_last == self.channels_last:
            scale, shift = following.scale_and_shift()
            weight = self.weight * scale.reshape(-1, *[1] * (self.weight.dim() - 1))
            bias = shift if self.bias is None else self.bias * scale + shift
            return msgspec.structs.replace(self, weight=weight, bias=bias)
        return None


def convolution(
    window: Window, weight: Tensor, bias: Tensor | None, groups: int = 1, *, channels_last: bool = False
) -> Convolution:
    """Return a convolution with a weight of torch's shape."""
    # torch is fastest in the memory order of _FASTEST, which the results take over: SqueezeNet takes 0.20 s instead of 0.33.
    weight = weight.contiguous(memory_format=_FASTEST[len(window.kernel)])
    return Convolution(window, weight, bias, groups, channels_last)


@layer("SpatialConvolution", "SpatialShareConvolution")
def _spatial(module: Module) -> Layer:
    window = Window.of(module, SPATIAL, kernel="kernel", stride="stride")
    groups = module.integer("nGroup", 1)
    outputs, inputs = module.integer("nOutputPlane"), module.integer("nInputPlane")
    last = module.channels_last()
    weight = module.weight
    if last:  # groups, kernel, inputs, outputs
        weight = weight.reshape(groups, *window.kernel, inputs // groups, outputs // groups).permute(0, 4, 3, 1, 2)
    weight = weight.reshape(outputs, inputs // groups, *window.kernel)
    return convolution(window, weight, module.bias, groups, channels_last=last)


@layer("quantized.SpatialConvolution", "quantized.SpatialDilatedConvolution")
def _quantized(module: Module) -> Layer:
    window = Window.of(module, SPATIAL, kernel="kernel", stride="stride")
    groups = module.integer("nGroup", 1)
    inputs, last = module.integer("nInputPlane") // groups, module.channels_last()
    weights = module.tensors("weights")
    if len(weights) != groups:
        raise NotServed(f"has {len(weights)} weights for {groups} groups")
    weight = torch.cat([each.reshape(-1, inputs, *window.kernel) for each in weights])
    bias = module.parameters[0] if module.parameters else None
    return convolution(window, weight, bias, groups, channels_last=last)


@layer("SpatialDilatedConvolution")
def _dilated(module: Module) -> Layer:
    window = Window.of(module, SPATIAL)
    shape = (module.integer("nOutputPlane"), module.integer("nInputPlane"), *window.kernel)
    return convolution(window, module.weight.reshape(shape), module.bias)


@layer("VolumetricConvolution")
def _volumetric(module: Module) -> Layer:
    window = Window.of(module, VOLUMETRIC)
    shape = (module.integer("nOutputPlane"), module.integer("nInputPlane"), *window.kernel)
    return convolution(window, module.weight.reshape(shape), module.bias)


@layer("SpatialFullConvolution")
def _full(module: Module) -> Layer:
    numbers = module.integers("intParams")
    _inputs, outputs, kernel_w, kernel_h, *rest, groups = numbers
    stride_w, stride_h, pad_w, pad_h, extra_w, extra_h = rest
    weight = module.weight.reshape(-1, outputs // groups, kernel_h, kernel_w)
    bias, stride, pad, extra = module.bias, (stride_h, stride_w), (pad_h, pad_w), (extra_h, extra_w)
    return lambda x: F.conv_transpose2d(x, weight, bias, stride, pad, extra, groups)


@layer("VolumetricFullConvolution")
def _volumetric_full(module: Module) -> Layer:
    window = Window.of(module, VOLUMETRIC)
    extra = tuple(module.integer("adj" + axis, 0) for axis in VOLUMETRIC)
    groups = module.integer("nGroup", 1)
    weight = module.weight.reshape(-1, module.integer("nOutputPlane") // groups, *window.kernel)
    bias = module.bias
    return lambda x: F.conv_transpose3d(x, weight, bias, window.stride, window.pad, extra, groups)


@layer("SpatialSeparableConvolution")
def _separable(module: Module) -> Layer:
    window = Window.of(module, SPATIAL, stride="s", pad="p")
    inputs, outputs = module.integer("nInputChannel"), module.integer("nOutputChannel")
    multiplier, last = module.integer("depthMultiplier"), module.channels_last("dataFormat")
    # Files of version 0.5 have the weights only as attributes.
    weights: list[Tensor | None] = [*module.parameters]
    weights = weights or [module.tensor(key) for key in ("depthWeight", "pointWeight", "bias")]
    depth, point, bias = [*weights, None, None, None][:3]
    if depth is None or point is None:
        raise NotServed("has no weights")
    # Output channels are ordered by input channel first: the multiples of an input channel lie side by side.
    depth = depth.permute(2, 3, 0, 1) if last else depth.transpose(0, 1)
    point = point.reshape(inputs * multiplier, outputs).T if last else point
    depth = depth.reshape(inputs * multiplier, 1, *window.kernel)
    point = point.reshape(outputs, inputs * multiplier, 1, 1)
    by_channel = convolution(window, depth, None, inputs, channels_last=last)
    return chain([by_channel, convolution(_POINT, point, bias, channels_last=last)])


@layer("TemporalConvolution")
def _temporal(module: Module) -> Layer:
    inputs, outputs = module.integer("inputFrameSize"), module.integer("outputFrameSize")
    kernel, stride = module.integer("kernelW"), module.integer("strideW", 1)
    weight = module.weight.reshape(outputs, kernel, inputs).transpose(1, 2).contiguous()
    bias = module.bias
    return channels_first(lambda x: F.conv1d(x, weight, bias, stride), channels_last=True, axes=1)


@layer("LocallyConnected1D")
def _local_temporal(module: Module) -> Layer:
    kernel, stride = module.integer("kernelW"), module.integer("strideW", 1)
    weight, bias = module.weight, module.bias  # [frames, outputs, kernel x inputs] and [frames, outputs]

    def run(x: Tensor) -> Tensor:
        frames = x.unfold(-2, kernel, stride).transpose(-1, -2).flatten(-2)
        out = torch.einsum("...lf,lof->...lo", frames, weight)
        return out if bias is None else out + bias

    return run


@layer("LocallyConnected2D")
def _local(module: Module) -> Layer:
    window = Window.of(module, SPATIAL, kernel="kernel", stride="stride")
    sizes = (module.integer("inputHeight"), module.integer("inputWidth"))
    pads = window.padding(sizes)
    rows, columns = (
        (size + sum(pad) - reach) // step + 1
        for size, pad, reach, step in zip(sizes, pads, window.extent, window.stride, strict=True)
    )
    last = module.channels_last()
    inputs, outputs = module.integer("nInputPlane"), module.integer("nOutputPlane")
    weight, bias = module.weight, module.bias
    if last:  # the features of a patch are kernel first, channel last
        weight = weight.reshape(rows * columns, outputs, -1, inputs).transpose(2, 3).flatten(2)
        bias = None if bias is None else bias.reshape(rows, columns, outputs).movedim(-1, 0)
    # BigDL adds the bias of [places, outputs] in the order of memory to [outputs, places].
    bias = None if bias is None else bias.reshape(outputs, rows, columns)

    def run(x: Tensor) -> Tensor:
        patches = F.unfold(window.padded(x), window.kernel, stride=window.stride)
        out = torch.einsum("...fl,lof->...ol", patches, weight)
        images = out.reshape(*out.shape[:-1], rows, columns)
        return images if bias is None else images + bias

    return channels_first(run, channels_last=last)
