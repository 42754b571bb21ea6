"""What every backend must have."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from numpy.typing import NDArray

from cluster_serving.client.tensor_spec import TensorSpec

__all__ = ["Array", "Backend", "LoadOptions", "ModelError", "TensorSpec", "numbered", "open_inputs"]

Array = NDArray[Any]


def open_inputs(count: int) -> tuple[TensorSpec, ...]:
    """The inputs of a model that takes any number of them, for a record with so many."""
    return tuple(TensorSpec(name, "float32", None) for name in numbered("input", count))


def numbered(word: str, count: int) -> list[str]:
    """Names for what has none: `output` for one, `output1`, `output2`, ... for several."""
    return [word] if count == 1 else [f"{word}{number}" for number in range(1, count + 1)]


class LoadOptions(msgspec.Struct, frozen=True):
    """How a worker loads and runs its model; what a backend has no use for, it leaves alone.

    `threads` for one call. `precision` of the arithmetic, "f32" or "bf16". `inputs` and `outputs`: what the configuration says of
    them, in the words of `TensorSpec.describe`; empty: the model knows. `signature` of a TensorFlow SavedModel. `allow_pickle`:
    whether a file may run code of its own while it is read.
    """

    threads: int = 1
    precision: str = "f32"
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    signature: str = ""
    allow_pickle: bool = False

    @property
    def stated(self) -> tuple[TensorSpec, ...]:
        """What `inputs` says."""
        return tuple(TensorSpec.parse(text) for text in self.inputs)

    def declared(self, names: Sequence[str]) -> dict[str, TensorSpec]:
        """What the configuration says of the inputs called `names`, by these names: bound by name, else by position.

        Raises:
            ModelError: it names neither some of these nor as many.
        """
        specs = self.stated
        by_name = {spec.name: spec for spec in specs}
        if by_name.keys() <= set(names):
            return by_name
        if len(specs) != len(names):
            raise ModelError(f"modelInputs names {', '.join(by_name)}; the model takes {', '.join(names)}.")
        return dict(zip(names, specs, strict=True))

    def shaped(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """The model's inputs, with the shapes that the configuration states in place of freer ones.

        Raises:
            ModelError: the configuration names others, or a shape that the model does not take.
        """
        stated = self.declared([spec.name for spec in specs]) if self.inputs else {}
        return tuple(_shaped(spec, stated[spec.name]) if spec.name in stated else spec for spec in specs)


def _shaped(spec: TensorSpec, stated: TensorSpec) -> TensorSpec:
    if stated.shape is None:
        return spec
    free = spec.shape is None
    if spec.shape and len(spec.shape) == len(stated.shape):
        free = all(dim in (None, wanted) for dim, wanted in zip(spec.shape, stated.shape, strict=True))
    if not free:
        raise ModelError(f"modelInputs says {stated.describe()}, and the model takes {spec.describe()}.")
    return TensorSpec(spec.name, spec.dtype, stated.shape)


class Backend(Protocol):
    """A loaded model. It lives in one worker and is called by one thread.

    `inputs` is empty where the model takes any number of float32 tensors (`open_inputs`), `outputs` where they are known only
    after a run.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once.

        Args:
            batch: for each input its array, rows first, in the order of `inputs`: C order, the dtype of its spec; text is an
                array of `str` objects. Valid only during the call.

        Returns:
            For each output its array, rows first, in the order of `outputs`; text as an array of `str` objects.
        """
        ...


class ModelError(Exception):
    """The model cannot be loaded; the message says which file is at fault and how to mend it."""
