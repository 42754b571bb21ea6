"""Normalizations, and the layers that are at work only in training."""

from math import inf

import msgspec
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from cluster_serving.node.models.bigdl.axes import channels_first
from cluster_serving.node.models.bigdl.layers.dense import fitted
from cluster_serving.node.models.bigdl.registry import Layer, layer, passed_on
from cluster_serving.node.models.bigdl.tree import Module, NotServed


class BatchNormalization(msgspec.Struct, frozen=True, eq=False):
    """Batch normalization by running statistics. `axes` counts the axes of an image without the channels, and is 0 for rows."""

    mean: Tensor
    variance: Tensor
    weight: Tensor | None
    bias: Tensor | None
    eps: float
    axes: int
    channels_last: bool

    def __call__(self, x: Tensor) -> Tensor:
        """Normalize a batch, or a single image."""
        if self.channels_last:
            x = x.movedim(-1, -1 - self.axes)
        batch = x.unsqueeze(0) if x.dim() == self.axes + 1 else x
        out = F.batch_norm(batch, self.mean, self.variance, self.weight, self.bias, eps=self.eps).reshape(x.shape)
        return out.movedim(-1 - self.axes, -1) if self.channels_last else out

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """Return the factor of each channel, and the summand that is added after the multiplication."""
        scale = torch.rsqrt(self.variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        shift = -self.mean * scale
        return scale, shift if self.bias is None else shift + self.bias


@layer("BatchNormalization", "SpatialBatchNormalization", "VolumetricBatchNormalization")
def _batch_normalization(module: Module) -> Layer:
    mean, variance = module.tensor("runningMean"), module.tensor("runningVar")
    if mean is None or variance is None:
        raise NotServed("has no running mean and variance")
    weight, bias = (module.weight, module.bias) if module.flag("affine", default=True) else (None, None)
    axes = {"Spatial": 2, "Volumetric": 3}.get(module.short_class.removesuffix("BatchNormalization"), 0)
    last = axes > 0 and module.channels_last("dataFormat")
    return BatchNormalization(mean, variance, weight, bias, module.number("eps", 1e-5), axes, last)


@layer("LayerNormalization", "InternalLayerNorm")
def _layer_normalization(module: Module) -> Layer:
    weight, bias = module.weight.flatten(), module.bias
    eps = module.number("eps", 1e-5) if module.short_class == "InternalLayerNorm" else 1e-6
    flat = None if bias is None else bias.flatten()
    return lambda x: F.layer_norm(x, (len(weight),), weight, flat, eps)


@layer("SpatialCrossMapLRN")
def _cross_map_lrn(module: Module) -> Layer:
    size, alpha = module.integer("size", 5), module.number("alpha", 1)
    beta, k = module.number("beta", 0.75), module.number("k", 1)

    def run(x: Tensor) -> Tensor:
        batch = x if x.dim() == 4 else x.unsqueeze(0)
        return F.local_response_norm(batch, size, alpha, beta, k).reshape(x.shape)

    return channels_first(run, channels_last=module.channels_last())


@layer("SpatialWithinChannelLRN")
def _within_channel_lrn(module: Module) -> Layer:
    size, alpha, beta = module.integer("size", 5), module.number("alpha", 1), module.number("beta", 0.75)
    return lambda x: x * (1 + alpha * F.avg_pool2d(x * x, size, 1, (size - 1) // 2)) ** -beta


@layer("Normalize")
def _normalize(module: Module) -> Layer:
    p, eps = module.number("p"), module.number("eps", 1e-10)
    return lambda x: x / _norm(x, p, eps)


@layer("NormalizeScale")
def _normalize_scale(module: Module) -> Layer:
    p, eps, weight = module.number("p"), module.number("eps", 1e-10), module.weight
    return lambda x: x / _norm(x, p, eps) * fitted(weight, x)


def _norm(x: Tensor, p: float, eps: float) -> Tensor:
    """Return the norm over the channels, which are the second axis of a batch."""
    axis = min(1, x.dim() - 1)
    if p == inf:
        return x.abs().amax(axis, keepdim=True)
    return (x.abs().pow(p).sum(axis, keepdim=True) + eps) ** (1 / p)


@layer(
    "ActivityRegularization",
    "Contiguous",
    "DenseToSparse",
    "Echo",
    "GaussianDropout",
    "GaussianNoise",
    "GradientReversal",
    "Identity",
    "Input",
    "L1Penalty",
    "NegativeEntropyPenalty",
    gives="unknown",
)
def _identity(_module: Module) -> Layer:
    return passed_on


@layer("Dropout")
def _dropout(module: Module) -> Layer:
    kept = 1.0 if module.flag("scale", default=True) else 1 - module.number("initP", 0.5)
    return passed_on if kept == 1 else lambda x: x * kept


@layer("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
def _spatial_dropout(module: Module) -> Layer:
    kept = 1 - module.number("initP", 0.5)  # at inference too, because the layer does not scale up in training
    return lambda x: x * kept


@layer("Masking")
def _masking(module: Module) -> Layer:
    masked = module.number("maskValue", 0)
    return lambda x: torch.where((x != masked).any(-1, keepdim=True), x, torch.zeros_like(x))
