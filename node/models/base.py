"""What every backend must have."""

import re
from collections.abc import Sequence
from typing import Any, Protocol, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_SPEC = re.compile(r"(?P<name>\S+)(?:\s+(?P<dtype>\w+))?(?:\s*\[(?P<dims>[^\[\]]*)\])?")
_NUMBERS = "biuf"


class TensorSpec(msgspec.Struct, frozen=True):
    """One input or output of a model.

    `dtype` is that of numpy, or "str" for text. `shape` includes the batch dimension; a dimension of `None` is free, and a
    shape of `None` is not known: any number of dimensions, the batch dimension first.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def row_shape(self) -> tuple[int | None, ...] | None:
        """The shape of one row: without the batch dimension."""
        return None if self.shape is None else self.shape[1:]

    @property
    def batch(self) -> int | None:
        """The one batch size that the model was made for, if it was."""
        return self.shape[0] if self.shape else None

    @property
    def is_text(self) -> bool:
        """Whether this input or output holds strings."""
        return self.dtype == "str"

    def describe(self) -> str:
        """For people: `data float32 [N,3,227,227]`; `parse` reads it."""
        return f"{self.name} {self.kind}"

    @property
    def kind(self) -> str:
        """For people: `float32 [N,3,227,227]`; a free first dimension is N, others are ?, an unknown shape is [N,...]."""
        if self.shape is None:
            return f"{self.dtype} [N,...]"
        dims = [
            "N" if dim is None and at == 0 else "?" if dim is None else str(dim) for at, dim in enumerate(self.shape)
        ]
        return f"{self.dtype} [{','.join(dims)}]"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `ids`, `ids int64` or `ids int64 [N,12]`: float32 and an unknown shape unless stated.

        Raises:
            ValueError: it is none of these.
        """
        match = _SPEC.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not of the form: name dtype [N,3,224,224]")
        try:
            dtype = np.dtype(match["dtype"] or "float32")
        except TypeError as error:
            raise ValueError(f"{text!r}: there is no dtype {match['dtype']}") from error
        if dtype.kind not in _NUMBERS and dtype.name != "str":
            raise ValueError(f"{text!r}: {match['dtype']} is neither numbers nor str")
        return cls(match["name"], dtype.name, _shape(match["dims"], text))


def _shape(dims: str | None, text: str) -> tuple[int | None, ...] | None:
    if dims is None or [dim.strip() for dim in dims.split(",")][1:] == ["..."]:
        return None
    try:
        return tuple(None if dim.strip() in ("N", "?", "None") else int(dim) for dim in dims.split(","))
    except ValueError as error:
        raise ValueError(f"{text!r}: a dimension is a number, N or ?") from error


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
