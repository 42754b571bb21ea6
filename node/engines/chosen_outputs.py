"""Restriction of a model to the outputs that the configuration names."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from cluster_serving.node.models.base import Array, Backend, ModelError, TensorSpec

T = TypeVar("T")


class ChosenOutputs:
    """Wrapper of a backend that returns only the outputs in `names`, in the order of `names`.

    Raises:
        ModelError: the model lacks an output in `names`. For a model without declared outputs, `run` raises the error.
    """

    def __init__(self, backend: Backend, names: Sequence[str]) -> None:
        self.inputs = backend.inputs
        self._backend = backend
        self._names = tuple(names)
        self.outputs = self._specs()

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once."""
        self._backend.inputs = self.inputs  # their batch axes are settled after loading
        chosen = self._choose(self._backend.run(batch))
        self.outputs = self.outputs or self._specs()
        return chosen

    def _specs(self) -> tuple[TensorSpec, ...]:
        known = {spec.name: spec for spec in self._backend.outputs}
        return tuple(self._choose(known).values()) if known else ()

    def _choose(self, outputs: Mapping[str, T]) -> dict[str, T]:
        for name in self._names:
            if name not in outputs:
                raise ModelError(f"modelOutputs names {name}; the model gives {', '.join(outputs)}.")
        return {name: outputs[name] for name in self._names}
