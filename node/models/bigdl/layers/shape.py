"""Layers that reshape the input, cut out a part, or make copies."""

from math import prod

import torch
from torch import Tensor

from cluster_serving.node.models.bigdl.axes import axis_of, index_of
from cluster_serving.node.models.bigdl.registry import Layer, layer
from cluster_serving.node.models.bigdl.tree import Module

_BATCH_AUTO, _BATCH_NO = 0, 1


@layer("Reshape")
def _reshape(module: Module) -> Layer:
    size, mode = module.integers("size"), module.integer("batchMode", _BATCH_AUTO)
    numbers = prod(size)

    def run(x: Tensor) -> Tensor:
        whole = mode == _BATCH_NO or (mode == _BATCH_AUTO and x.numel() == numbers and x.shape[0] != 1)
        return x.reshape(size) if whole else x.reshape(x.shape[0], *size)

    return run


@layer("View")
def _view(module: Module) -> Layer:
    sizes = module.integers("sizes")
    numbers = prod(sizes)

    def run(x: Tensor) -> Tensor:
        batch = x.numel() // abs(numbers)
        # BigDL would take the batch axis away from a single row, and would not give the axis back to the answer.
        is_row = x.shape[0] == 1 and sizes[0] != 1
        return x.reshape(sizes) if -1 in sizes or (batch == 1 and not is_row) else x.reshape(batch, *sizes)

    return run


@layer("InferReshape")
def _infer_reshape(module: Module) -> Layer:
    size, batch_axes = module.integers("size"), int(module.flag("batchMode", default=False))

    def run(x: Tensor) -> Tensor:
        # BigDL counts the batch axis too when it copies an axis.
        copied = [x.shape[at] if dim == 0 else dim for at, dim in enumerate(size)]
        return x.reshape(*x.shape[:batch_axes], *copied)

    return run


@layer("Transpose")
def _transpose(module: Module) -> Layer:
    swaps = [module.integers(f"permutation_{at}") for at in range(module.integer("size"))]

    def run(x: Tensor) -> Tensor:
        for first, second in swaps:
            x = x.transpose(axis_of(x, first), axis_of(x, second))
        return x

    return run


@layer("Select")
def _select(module: Module) -> Layer:
    dimension, index = module.integer("dimension"), module.integer("index")

    def run(x: Tensor) -> Tensor:
        axis = axis_of(x, dimension)
        return x.select(axis, index_of(x.shape[axis], index))

    return run


@layer("Narrow")
def _narrow(module: Module) -> Layer:
    dimension, offset, length = module.integer("dimension"), module.integer("offset"), module.integer("length", 1)

    def run(x: Tensor) -> Tensor:
        axis = axis_of(x, dimension)
        start = index_of(x.shape[axis], offset)
        return x.narrow(axis, start, length if length >= 0 else x.shape[axis] - start + length + 1)

    return run


@layer("Squeeze")
def _squeeze(module: Module) -> Layer:
    dimensions, shift = module.integers("dims", []), int(module.flag("batchMode", default=False))

    def run(x: Tensor) -> Tensor:
        for each in dimensions:  # axes are counted anew after each removal
            x = x.squeeze(axis_of(x, each + shift))
        # Without dimensions, all axes of size 1 go except the batch axis.
        return x if dimensions else x.reshape(x.shape[0], *(size for size in x.shape[1:] if size != 1))

    return run


@layer("Unsqueeze")
def _unsqueeze(module: Module) -> Layer:
    positions, row_axes = module.integers("pos"), module.integer("numInputDims", -1)

    def run(x: Tensor) -> Tensor:
        shift = int(0 < row_axes == x.dim() - 1)
        axes = sorted((x.dim() + at if at <= 0 else at - 1) + shift for at in positions)
        for inserted, axis in enumerate(axes):
            x = x.unsqueeze(axis + inserted)
        return x

    return run


@layer("Replicate")
def _replicate(module: Module) -> Layer:
    copies, dimension, row_axes = (
        module.integer("nFeatures"),
        module.integer("dim", 1),
        module.integer("nDim", 2**31 - 1),
    )

    def run(x: Tensor) -> Tensor:
        axis = dimension - 1 + int(x.dim() > row_axes)
        return x.unsqueeze(axis).expand(*x.shape[:axis], copies, *x.shape[axis:])

    return run


@layer("Tile")
def _tile(module: Module) -> Layer:
    dimension, copies = module.integer("dim", 1), module.integer("copies", 2)
    return lambda x: torch.cat([x] * copies, axis_of(x, dimension))


@layer("Reverse")
def _reverse(module: Module) -> Layer:
    dimension = module.integer("dim", 1)
    return lambda x: x.flip(axis_of(x, dimension))


@layer("ExpandSize")
def _expand_size(module: Module) -> Layer:
    sizes = module.integers("targetSizes")
    return lambda x: x.expand(sizes)


@layer("InternalExpand")
def _expand(module: Module) -> Layer:
    sizes = module.integers("tgtSizes")
    return lambda x: x.expand(sizes)


@layer("Padding")
def _padding(module: Module) -> Layer:
    dimension, amount, row_axes = module.integer("dim"), module.integer("pad"), module.integer("nInputDim")
    value, index = module.number("value", 0), module.integer("nIndex", 1)

    def run(x: Tensor) -> Tensor:
        axis = dimension - 1 + int(x.dim() != row_axes)
        size = x.shape[axis]
        at = size + 1 - index if amount > 0 else index - 1  # a positive amount counts from the end
        filler = x.new_full((*x.shape[:axis], abs(amount), *x.shape[axis + 1 :]), value)
        return torch.cat([x.narrow(axis, 0, at), filler, x.narrow(axis, at, size - at)], axis)

    return run


@layer("SplitTable", gives="unknown")
def _split_table(module: Module) -> Layer:
    dimension, row_axes = module.integer("dimension"), module.integer("nInputDims", -1)
    keep = module.flag("keepDim", default=False)

    def run(x: Tensor) -> list[Tensor]:
        axis = axis_of(x, dimension, row_axes)
        return list(torch.split(x, 1, axis) if keep else x.unbind(axis))

    return run


@layer("BifurcateSplitTable", gives="unknown")
def _bifurcate(module: Module) -> Layer:
    dimension = module.integer("dimension")

    def run(x: Tensor) -> list[Tensor]:
        axis = axis_of(x, dimension)
        half = x.shape[axis] // 2
        return [x.narrow(axis, 0, half), x.narrow(axis, half, x.shape[axis] - half)]

    return run


@layer("InternalSplitTensor", gives="unknown")
def _split_tensor(module: Module) -> Layer:
    dimension, parts = module.integer("dimension"), module.integer("num")

    def run(x: Tensor) -> list[Tensor]:
        axis = axis_of(x, dimension)
        return list(torch.split(x, x.shape[axis] // parts, axis))

    return run
