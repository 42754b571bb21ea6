"""Layers with a matrix or a vector of weights."""

from sys import float_info

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from cluster_serving.node.models.bigdl.registry import Layer, layer
from cluster_serving.node.models.bigdl.tree import Module, NotServed

_COSINE_EPS = 1e-12


@layer("Linear", "SparseLinear")
def _linear(module: Module) -> Layer:
    weight, bias = module.weight.contiguous(), module.bias
    return lambda x: F.linear(x, weight, bias)


@layer("quantized.Linear")
def _quantized_linear(module: Module) -> Layer:
    weights = module.tensors("weight")
    if len(weights) != 1:
        raise NotServed("has no weights")
    weight, bias = weights[0], module.parameters[0] if module.parameters else None
    return lambda x: F.linear(x, weight, bias)


@layer("LookupTable")
def _lookup_table(module: Module) -> Layer:
    weight = module.weight
    max_norm = module.number("maxNorm", float_info.max)
    if max_norm < float_info.max:
        weight = torch.renorm(weight, module.number("normType", 2), 0, max_norm)
    padding = module.number("paddingValue", 0)
    masked = module.flag("maskZero", default=False)

    def run(ids: Tensor) -> Tensor:
        if not masked:
            return F.embedding(ids.long() - 1, weight)
        rows = F.embedding((ids.long() - 1).clamp(min=0), weight)
        return rows.masked_fill((ids == padding).unsqueeze(-1), 0)

    return run


@layer("Euclidean")
def _euclidean(module: Module) -> Layer:
    weight = module.weight  # inputs, outputs

    def run(x: Tensor) -> Tensor:
        distances: Tensor = torch.linalg.vector_norm(x.unsqueeze(-1) - weight, dim=-2)
        return distances

    return run


@layer("Cosine")
def _cosine(module: Module) -> Layer:
    weight = module.weight  # outputs, inputs

    def run(x: Tensor) -> Tensor:
        return F.cosine_similarity(x.unsqueeze(-2), weight, dim=-1, eps=_COSINE_EPS)

    return run


@layer("Maxout")
def _maxout(module: Module) -> Layer:
    weight, bias = module.weight, module.bias
    pieces = (module.integer("maxoutNumber"), module.integer("outputSize"))

    def run(x: Tensor) -> Tensor:
        out = F.linear(x, weight, bias)
        return out.reshape(*out.shape[:-1], *pieces).amax(-2)

    return run


@layer("CMul", "Mul")
def _cmul(module: Module) -> Layer:
    weight = module.weight
    return lambda x: x * fitted(weight, x)


@layer("CAdd", "Add")
def _cadd(module: Module) -> Layer:
    bias = module.weight
    return lambda x: x + fitted(bias, x)


@layer("Scale")
def _scale(module: Module) -> Layer:
    factor, summand = module.module("cmul"), module.module("cadd")
    weights = module.parameters or [each.weight for each in (factor, summand) if each is not None]
    if len(weights) != 2:
        raise NotServed("has no weights")
    weight, bias = weights
    return lambda x: x * fitted(weight, x) + fitted(bias, x)


@layer("InternalParameter")
def _parameter(module: Module) -> Layer:
    weight = module.weight
    return lambda _: weight


def fitted(weight: Tensor, x: Tensor) -> Tensor:
    """Return a weight that broadcasts over `x`.

    A single number stays as it is, and so does a weight with as many axes as `x` or one fewer. Any other weight lies along the
    channels.
    """
    if weight.numel() == 1 or x.dim() - weight.dim() in (0, 1):
        return weight
    return weight.reshape(-1, *[1] * (x.dim() - 2))
