"""Models that are a Python class of the user.

    class Model:
        inputs = {"image": "float32 [N,28,28]"}             # or [("image", "float32", (None, 28, 28))]
        outputs = {"probability": "float32 [N,10]"}

        def load(self):                # optional: called once, before anything else
            self.weights = numpy.load(Path(__file__).parent / "weights.npy")

        def predict(self, batch):      # {"image": array} -> {"probability": array}, rows first
            ...

A row stands along N, wherever N stands in a shape, else in front. A tensor without N beside tensors with N is shared by a batch.

The class is called `Model`, or it is the only public class of the file with a method `predict`. Inputs of dtype `str` arrive as
arrays of `str` objects. In a shape, N and ? in text, or `None` in a tuple, stand for any size. `predict` may change the arrays
of the batch, which are its own.
"""

import inspect
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from cluster_serving.client.tensor_spec import matches
from cluster_serving.node.models.base import Array, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.user_code import execute, faults_of, place_of, public_classes

_MODULE = "_cluster_serving_model"
_NUMBERS = "biuf"
_FORM = 'a list of (name, dtype, shape), or a dict such as {"x": "float32 [N,4]"}'


class PythonBackend:
    """An object of the user's class."""

    def __init__(self, model: Any, path: Path) -> None:
        self.inputs = _specs(model, "inputs", path)
        self.outputs = _specs(model, "outputs", path)
        self._model = model

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Call `predict` once on a copy of `batch`, and cast the returned arrays to the declared dtypes.

        Raises:
            ValueError: an output is missing, has values that its dtype cannot hold, or a wrong shape or a wrong number of rows.
            Exception: any exception of `predict`.
        """
        counts = [rows for spec in self.inputs if (rows := spec.rows_of(batch[spec.name])) is not None]
        rows = counts[0] if counts else None
        # The user's code may write into its input. Read-only views would stop `x /= 255`, and torch writes into them all the same.
        answer = self._model.predict({name: array.copy() for name, array in batch.items()})
        if not isinstance(answer, dict):
            raise ValueError(f"predict must return a dict of arrays, not {type(answer).__name__}")
        returned = cast("dict[str, Any]", answer)
        arrays: dict[str, Array] = {}
        for spec in self.outputs:
            if spec.name not in returned:
                raise ValueError(
                    f"predict did not return {spec.name!r}, only {', '.join(map(repr, returned)) or 'nothing'}"
                )
            array = _as_declared(returned[spec.name], spec)
            expected = tuple(rows if at == spec.batch_axis else dim for at, dim in enumerate(spec.shape or ()))
            if not matches(array.shape, expected):
                told = spec.describe() if rows is None else f"{rows} rows of {spec.describe()}"
                raise ValueError(f"predict returned {spec.name!r} with shape {list(array.shape)} for {told}")
            arrays[spec.name] = array
        return arrays


def _as_declared(value: Any, spec: TensorSpec) -> Array:
    """Return an output in its declared dtype. Floats are rounded as numpy rounds them."""
    if spec.is_text:
        return np.asarray(value, dtype=object)
    array, dtype = np.asarray(value), np.dtype(spec.dtype)
    if np.ma.is_masked(value):
        raise ValueError(f"predict returned {spec.name!r} with masked values: fill them, as numpy.ma.filled does")
    if array.dtype.kind == "c":
        raise ValueError(f"predict returned {spec.name!r} as complex numbers: return .real and .imag as two outputs")
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):
        declared = array.astype(dtype)
    if dtype.kind != "f" and array.dtype.kind in _NUMBERS and (lost := declared != array).any():
        example = array[lost].flat[0]
        raise ValueError(f"predict returned {spec.name!r} with {example} of {array.dtype}, which {dtype} cannot hold")
    return declared


def load(detected: Detected, options: LoadOptions) -> PythonBackend:
    """Execute the user's file and make its model.

    Args:
        detected: place of the file. The file can import the modules in its directory.
        options: without effect. Numerical libraries take the thread count from the process's environment.

    Raises:
        ModelError: the file fails, or its class is not as it should be. The message names the place.
    """
    path = detected.definition.absolute()
    with faults_of(path):
        module = execute(path, _MODULE)
        model_class: Any = getattr(module, "Model", None)
        if inspect.isclass(model_class):
            if not callable(getattr(model_class, "predict", None)):
                raise ModelError(f"{place_of(model_class, path)}: class Model has no method predict(self, batch).")
        else:
            found = [each for each in public_classes(module) if callable(getattr(each, "predict", None))]
            if len(found) != 1:
                names = ", ".join(each.__name__ for each in found) or "none"
                raise ModelError(
                    f"{path} must hold one class with a method predict(self, batch), and has {names}; call the one to serve "
                    "Model."
                )
            model_class = found[0]
        model = model_class()
        prepare = getattr(model, "load", None)
        if prepare is not None:
            prepare()
        return PythonBackend(model, path)


def _specs(model: Any, attribute: str, path: Path) -> tuple[TensorSpec, ...]:
    place = f"{place_of(type(model), path)}: {type(model).__name__}.{attribute}"
    # hasattr() would hide an AttributeError that arises inside of a property.
    if inspect.getattr_static(model, attribute, None) is None:
        raise ModelError(f"{place} is missing: it must be {_FORM}.")
    declared = getattr(model, attribute)
    entries: Any = list(declared.items()) if isinstance(declared, dict) else declared
    if not isinstance(entries, (list, tuple)) or not entries:
        raise ModelError(f"{place} must be {_FORM}, not {declared!r}.")
    specs: list[TensorSpec] = []
    for each in cast("list[Any]", entries):
        try:
            spec = _spec(each)
        except (TypeError, ValueError) as error:
            raise ModelError(f"{place} must be {_FORM}, but has {each!r}: {error}") from error
        if spec.shape is None:
            raise ModelError(f"{place}: {spec.name!r} must have a shape, as in (None, 10), [N,10] or [].")
        if any(dim is not None and dim < 1 for dim in spec.shape):
            raise ModelError(
                f"{place}: the shape of {spec.name!r} is {spec.shape}; write None for a dimension that may be any size."
            )
        specs.append(spec)
    if len({spec.name for spec in specs}) < len(specs):
        raise ModelError(f"{place} has one name twice.")
    return tuple(specs)


def _spec(entry: Any) -> TensorSpec:
    match entry:
        case str():
            return TensorSpec.parse(entry)
        case [str() as name, str() as kind]:
            return msgspec.structs.replace(TensorSpec.parse(f"x {kind}"), name=name)
        case _:
            name, dtype_like, shape = entry
            dtype = np.dtype(dtype_like)
            if not isinstance(name, str) or not (dtype.kind in _NUMBERS or dtype == np.dtype(str)):
                raise ValueError("each has a name, and a dtype of numbers, or str for text")
            dims = tuple(None if dim is None else int(dim) for dim in shape)
            return TensorSpec(name, dtype.name, dims, 0 if dims else None)
