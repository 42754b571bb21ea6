"""Layers that run in sequence, and the fusion of two layers into a single layer."""

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from cluster_serving.node.models.bigdl.registry import Layer, passed_on


@runtime_checkable
class Absorbing(Protocol):
    """A layer that may also do the work of the following layer."""

    def absorb(self, following: Layer) -> Layer | None:
        """Return a layer that does the work of both layers, or `None` if there is no fusion."""
        ...


class Chain:
    """Layers that run in order."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers

    def __call__(self, value: Any) -> Any:
        """Run the layers."""
        for layer in self.layers:
            value = layer(value)
        return value


def chain(layers: Iterable[Layer]) -> Layer:
    """Return a layer that does the work of `layers` in a row, with as few layers as possible."""
    kept: list[Layer] = []
    for each in layers:
        if each is passed_on:
            continue
        for layer in each.layers if isinstance(each, Chain) else [each]:
            single = fused(kept[-1], layer) if kept else None
            if single is None:
                kept.append(layer)
            else:
                kept[-1] = single
    return kept[0] if len(kept) == 1 else Chain(kept) if kept else passed_on


def fused(first: Layer, second: Layer) -> Layer | None:
    """Return a single layer for two layers in a row, or `None`. The output of `first` must go to `second` alone."""
    return first.absorb(second) if isinstance(first, Absorbing) else None
