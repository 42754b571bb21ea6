"""Interface of every backend, with the options and the error of loading a model."""

import re
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace
from numpy.typing import NDArray

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.binding import like

__all__ = ["Array", "Backend", "LoadOptions", "ModelError", "TensorSpec", "numbered", "open_inputs", "output_spec"]

Array = NDArray[Any]
_WITH_SHAPE = re.compile(r"\S+\s+\w+\s*\[[^\[\]]*\]")


def open_inputs(count: int, batch_axis: int | None = 0) -> tuple[TensorSpec, ...]:
    """Return the float32 inputs of a model that takes any number of inputs, for a record with `count` tensors."""
    return tuple(TensorSpec(name, "float32", None, batch_axis) for name in numbered("input", count))


def numbered(word: str, count: int) -> list[str]:
    """Return names for unnamed tensors: `output` for a single tensor, `output1`, `output2`, ... for several."""
    return [word] if count == 1 else [f"{word}{number}" for number in range(1, count + 1)]


def output_spec(text: str) -> TensorSpec:
    """Return the spec of a configured output. A text that is a name alone has an unknown dtype and shape.

    Raises:
        ValueError: the text has a dtype that does not exist, or a dimension that is no number, N or ?.
    """
    return TensorSpec.parse(text) if _WITH_SHAPE.fullmatch(text) else TensorSpec(text, "", None)


class LoadOptions(msgspec.Struct, frozen=True):
    """Settings with which a worker loads and runs a model. A backend ignores settings that do not apply to it.

    - `threads`: number of threads for a call.
    - `precision`: of the arithmetic, "f32" or "bf16", of a model in INT8 that of the rest.
    - `inputs` and `outputs`: tensors as configured, in the words of `TensorSpec.describe`, outputs also by name alone. Empty: the
      model states the tensors.
    - `signature`: of a TensorFlow SavedModel.
    - `allow_pickle`: whether a file may run its own code while it is read.
    - `batching`: whether records are rows of a batch: "auto", "rows" or "none". "batches": each record is a call, like "none", and
      a model of rows also takes a record that lacks the batch dimension.
    """

    threads: int = 1
    precision: str = "f32"
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    signature: str = ""
    allow_pickle: bool = False
    batching: str = "auto"

    @property
    def stated(self) -> tuple[TensorSpec, ...]:
        """Specs parsed from `inputs`."""
        return tuple(TensorSpec.parse(text) for text in self.inputs)

    @property
    def names_batch_axis(self) -> bool:
        """True if the configured inputs say where the batch dimension is."""
        return any(spec.shape and spec.batch_axis is not None and spec.batch is None for spec in self.stated)

    @property
    def stated_outputs(self) -> tuple[TensorSpec, ...]:
        """Specs parsed from `outputs`."""
        return tuple(map(output_spec, self.outputs))

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs to return. Empty: all."""
        return tuple(spec.name for spec in self.stated_outputs)

    def declared(self, names: Sequence[str]) -> dict[str, TensorSpec]:
        """Return the configured specs of the inputs called `names`. A spec is bound by name, or else by position.

        Raises:
            ModelError: the configuration has a name that the model lacks, and a different number of inputs, or a name in the place
                of an input for which it is not meant.
        """
        specs = self.stated
        by_name = {spec.name: spec for spec in specs}
        if by_name.keys() <= set(names):
            return by_name
        if len(specs) != len(names):
            raise ModelError(f"modelInputs names {', '.join(by_name)}; the model takes {', '.join(names)}.")
        for name, spec in zip(names, specs, strict=True):
            if like(spec.name, (name,)) is None and like(spec.name, tuple(names)) is not None:
                raise ModelError(
                    f"modelInputs has {spec.name} in the place of {name}; the model takes {', '.join(names)}: name them alike."
                )
        return dict(zip(names, specs, strict=True))

    def shaped(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """Return the model's inputs, with configured shapes in place of freer shapes.

        Raises:
            ModelError: the configuration names inputs that the model lacks, or a shape that the model does not take.
        """
        configured = self.declared([spec.name for spec in specs]) if self.inputs else {}
        shaped = list(specs)
        for at, spec in enumerate(specs):
            stated = configured.get(spec.name)
            if stated is None or stated.shape is None:
                continue
            free = spec.shape is None
            if spec.shape and len(spec.shape) == len(stated.shape):
                free = all(dim in (None, wanted) for dim, wanted in zip(spec.shape, stated.shape, strict=True))
            if not free:
                raise ModelError(f"modelInputs says {stated.describe()}, and the model takes {spec.describe()}.")
            shaped[at] = replace(spec, shape=stated.shape, batch_axis=stated.batch_axis)
        return tuple(shaped)


class Backend(Protocol):
    """A loaded model. A backend lives in one worker and is called by one thread.

    `inputs` is empty if the model takes any number of float32 tensors (`open_inputs`). `outputs` is empty if the outputs are
    known only after a run.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once.

        Args:
            batch: an array for each input, rows along the input's `batch_axis`, in the order of `inputs`. Arrays are in C
                order and have the dtype of the input's spec. Text is an array of `str` objects. The arrays are valid only
                during the call. `run` leaves the arrays as they are, because rows run again on the same arrays after a
                failure: a backend whose model may work in place runs the model on a copy.

        Returns:
            An array for each output, rows along the output's `batch_axis`, in the order of `outputs`. Text is an array of
            `str` objects.
        """
        ...


class ModelError(Exception):
    """The model cannot be loaded. The message names the file at fault and says how to mend it."""
