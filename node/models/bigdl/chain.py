"""Layers that run one after another, and two of them that become one."""

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from cluster_serving.node.models.bigdl.registry import Layer, passed_on


@runtime_checkable
class Absorbing(Protocol):
    """A layer that may do the work of the one after it too."""

    def absorb(self, following: Layer) -> Layer | None:
        """The layer that does the work of both; `None`: there is none."""
        ...


class Chain:
    """Layers that run in their order."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers

    def __call__(self, value: Any) -> Any:
        """Run them."""
        for layer in self.layers:
            value = layer(value)
        return value


def chain(layers: Iterable[Layer]) -> Layer:
    """What does the same as these layers in a row, with as few of them as can be."""
    kept: list[Layer] = []
    for layer in _spliced(layers):
        single = fused(kept[-1], layer) if kept else None
        if single is None:
            kept.append(layer)
        else:
            kept[-1] = single
    return kept[0] if len(kept) == 1 else Chain(kept) if kept else passed_on


def fused(first: Layer, second: Layer) -> Layer | None:
    """One layer for two in a row, of which nothing else takes the first one's output; `None`: there is none."""
    return first.absorb(second) if isinstance(first, Absorbing) else None


def _spliced(layers: Iterable[Layer]) -> Iterable[Layer]:
    for layer in layers:
        if isinstance(layer, Chain):
            yield from layer.layers
        elif layer is not passed_on:
            yield layer
