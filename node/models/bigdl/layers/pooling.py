"""Poolings. The divisor of an average counts a window clipped to the input, with or without its padding."""

from math import inf
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from cluster_serving.node.models.bigdl.axes import channels_first
from cluster_serving.node.models.bigdl.registry import Layer, layer
from cluster_serving.node.models.bigdl.tree import Module
from cluster_serving.node.models.bigdl.window import SPATIAL, VOLUMETRIC, Window

_MAXIMA: dict[int, Any] = {2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGES: dict[int, Any] = {2: F.avg_pool2d, 3: F.avg_pool3d}


@layer("SpatialMaxPooling")
def _spatial_max(module: Module) -> Layer:
    pool = _max_pooling(Window.of(module, SPATIAL, ceil="ceil_mode"))
    return channels_first(pool, channels_last=module.channels_last())


@layer("VolumetricMaxPooling")
def _volumetric_max(module: Module) -> Layer:
    return _max_pooling(Window.of(module, VOLUMETRIC, ceil="ceilMode"))


@layer("SpatialAveragePooling")
def _spatial_average(module: Module) -> Layer:
    pool = _average_pooling(module, Window.of(module, SPATIAL, ceil="ceilMode"))
    return channels_first(pool, channels_last=module.channels_last())


@layer("VolumetricAveragePooling")
def _volumetric_average(module: Module) -> Layer:
    return _average_pooling(module, Window.of(module, VOLUMETRIC, ceil="ceilMode"))


@layer("TemporalMaxPooling")
def _temporal_max(module: Module) -> Layer:
    kernel, stride = module.integer("kW"), module.integer("dW", -1)
    if kernel == -1:
        return lambda x: x.amax(-2, keepdim=True)
    step = kernel if stride == -1 else stride
    return channels_first(lambda x: F.max_pool1d(x, kernel, step), channels_last=True, axes=1)


def _max_pooling(window: Window) -> Layer:
    pool = _MAXIMA[len(window.kernel)]
    if window.is_plain_pooling:
        return lambda x: pool(x, window.kernel, window.stride, window.pad, ceil_mode=window.ceil)
    return lambda x: pool(window.padded(x, -inf), window.kernel, window.stride)


def _average_pooling(module: Module, window: Window) -> Layer:
    divide = module.flag("divide", default=True)
    with_padding = module.flag("countIncludePad", default=True)
    axes = len(window.kernel)
    pool = _AVERAGES[axes]
    if module.flag("globalPooling", default=False):
        whole = tuple(range(-axes, 0))
        return lambda x: x.mean(whole, keepdim=True) if divide else x.sum(whole, keepdim=True)
    if window.is_plain_pooling:
        divisor = None if divide else 1
        return lambda x: pool(x, window.kernel, window.stride, window.pad, window.ceil, with_padding, divisor)

    def run(x: Tensor) -> Tensor:
        sums: Tensor = pool(window.padded(x), window.kernel, window.stride, divisor_override=1)
        return sums / _counts(window, x, sums, with_padding=with_padding) if divide else sums

    return run


def _counts(window: Window, x: Tensor, sums: Tensor, *, with_padding: bool) -> Tensor:
    """Return the number of values in each average."""
    axes = len(window.kernel)
    counts = torch.ones(())
    pads = window.padding(tuple(x.shape[-axes:]))
    for at, (kernel, step, pad, (before, after)) in enumerate(
        zip(window.kernel, window.stride, window.pad, pads, strict=True), -axes
    ):
        size = x.shape[at]
        starts = torch.arange(sums.shape[at]) * step - before
        ends = starts + kernel
        if with_padding:
            spans = ends.clamp(max=size + (after if window.is_same else pad)) - starts
        else:
            spans = ends.clamp(max=size) - starts.clamp(min=0)
        counts = counts.unsqueeze(-1) * spans
    return counts
