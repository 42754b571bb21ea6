"""Functions of single numbers, and the softmax layers."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from cluster_serving.node.models.bigdl.registry import Layer, layer
from cluster_serving.node.models.bigdl.tree import Module, NotServed

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Exp": torch.exp,
    "HardSigmoid": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "InternalERF": torch.erf,
    "Log": torch.log,
    "LogSigmoid": F.logsigmoid,
    "LogSoftMax": lambda x: F.log_softmax(x, -1),
    "InternalSoftMax": lambda x: F.softmax(x, -1),
    "Negative": torch.neg,
    "ReLU": torch.relu,
    "ReLU6": F.relu6,
    "Sigmoid": torch.sigmoid,
    "SoftSign": F.softsign,
    "Sqrt": torch.sqrt,
    "Square": torch.square,
    "Tanh": torch.tanh,
    "TanhShrink": F.tanhshrink,
}


@layer(*_FUNCTIONS)
def _function(module: Module) -> Layer:
    return _FUNCTIONS[module.short_class]


@layer("LeakyReLU")
def _leaky_relu(module: Module) -> Layer:
    slope = module.number("negval", 0.01)
    return lambda x: F.leaky_relu(x, slope)


@layer("RReLU")
def _rrelu(module: Module) -> Layer:
    slope = (module.number("lower", 1 / 8) + module.number("upper", 1 / 3)) / 2
    return lambda x: F.leaky_relu(x, slope)


@layer("ELU")
def _elu(module: Module) -> Layer:
    alpha = module.number("alpha", 1)
    return lambda x: F.elu(x, alpha)


@layer("SoftPlus")
def _soft_plus(module: Module) -> Layer:
    beta = module.number("beta", 1)
    return lambda x: F.softplus(x, beta)


@layer("HardTanh")
def _hard_tanh(module: Module) -> Layer:
    low, high = module.number("minValue", -1), module.number("maxValue", 1)
    return lambda x: x.clamp(low, high)


@layer("Clamp")
def _clamp(module: Module) -> Layer:
    low, high = module.number("minV"), module.number("maxV")
    return lambda x: x.clamp(low, high)


@layer("Threshold")
def _threshold(module: Module) -> Layer:
    limit, value = module.number("th", 1e-6), module.number("v", 0)
    return lambda x: F.threshold(x, limit, value)


@layer("BinaryThreshold")
def _binary_threshold(module: Module) -> Layer:
    limit = module.number("th", 1e-6)
    return lambda x: (x > limit).to(x.dtype)


@layer("SoftShrink")
def _soft_shrink(module: Module) -> Layer:
    limit = module.number("lambda", 0.5)
    return lambda x: F.softshrink(x, limit)


@layer("HardShrink")
def _hard_shrink(module: Module) -> Layer:
    limit = module.number("lambda", 0.5)
    return lambda x: F.hardshrink(x, limit)


@layer("Power")
def _power(module: Module) -> Layer:
    power, scale, shift = module.number("power"), module.number("scale", 1), module.number("shift", 0)
    return lambda x: (scale * x + shift) ** power


@layer("MulConstant")
def _mul_constant(module: Module) -> Layer:
    constant = module.number("constant")
    return lambda x: x * constant


@layer("AddConstant")
def _add_constant(module: Module) -> Layer:
    constant = module.number("constant_scalar")
    return lambda x: x + constant


@layer("PReLU")
def _prelu(module: Module) -> Layer:
    weight = module.weight.flatten()

    def run(x: Tensor) -> Tensor:
        # The channels are the first axis of an image or a row, and the second axis of a batch.
        slope = weight.reshape(-1, *[1] * (x.dim() - 1 - (x.dim() + 1) % 2)) if len(weight) > 1 else weight
        return torch.where(x > 0, x, x * slope)

    return run


@layer("SReLU")
def _srelu(module: Module) -> Layer:
    weights = [module.tensor(key) for key in ("tLeft", "aLeft", "tRight", "aRight")]
    left, left_slope, distance, right_slope = weights if None not in weights else module.parameters
    if left is None or left_slope is None or distance is None or right_slope is None:
        raise NotServed("has no weights")
    right = distance.abs() + left  # always to the right of the left threshold
    left_at, left_by, right_by = left, left_slope, right_slope

    def run(x: Tensor) -> Tensor:
        below = torch.where(x <= left_at, left_at + left_by * (x - left_at), x)
        return torch.where(x >= right, right + right_by * (x - right), below)

    return run


@layer("SoftMax")
def _soft_max(module: Module) -> Layer:
    return _softmax_from(module.integer("pos", 1))


@layer("SoftMin")
def _soft_min(module: Module) -> Layer:
    softmax = _softmax_from(module.integer("pos", 1))
    return lambda x: softmax(-x)


def _softmax_from(first: int) -> Layer:
    """Build a softmax over the channels.

    A row, a batch of rows, an image or a batch of images begins at axis `first`, counted from 1.
    """

    def run(x: Tensor) -> Tensor:
        return F.softmax(x, first - 1 if (x.dim() - first) % 2 == 0 else first)

    return run
