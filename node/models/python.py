"""Models that are a Python class of the user.

    class Model:
        inputs = [("image", "float32", (None, 28, 28))]
        outputs = [("probability", "float32", (None, 10))]

        def load(self):                # optional: called once, before anything else
            self.weights = numpy.load(Path(__file__).parent / "weights.npy")

        def predict(self, batch):      # {"image": array} -> {"probability": array}, rows first
            ...

The class is called `Model`, or it is the only public class of the file with a method `predict`. Inputs of dtype `str` arrive as
arrays of `str` objects. `None` in a shape stands for any size.
"""

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from cluster_serving.node.models.base import Array, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.user_code import execute, faults_of, place_of, public_classes

_MODULE = "_cluster_serving_model"
_NUMBERS = "biuf"


class PythonBackend:
    """An object of the user's class."""

    def __init__(self, model: Any, path: Path) -> None:
        self.inputs = _specs(model, "inputs", path)
        self.outputs = _specs(model, "outputs", path)
        self._model = model

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Call `predict` once and cast the returned arrays to the declared dtypes.

        Raises:
            ValueError: an output is missing, or has a wrong shape or a wrong number of rows.
            Exception: any exception of `predict`.
        """
        rows = len(batch[self.inputs[0].name])
        answer = self._model.predict(batch)
        if not isinstance(answer, dict):
            raise ValueError(f"predict must return a dict of arrays, not {type(answer).__name__}")
        arrays = cast("dict[str, Any]", answer)
        return {spec.name: _output(spec, arrays, rows) for spec in self.outputs}


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
        model_class = _model_class(execute(path, _MODULE), path)
        model = model_class()
        prepare = getattr(model, "load", None)
        if prepare is not None:
            prepare()
        return PythonBackend(model, path)


def _model_class(module: ModuleType, path: Path) -> type[Any]:
    named = getattr(module, "Model", None)
    if inspect.isclass(named):
        if not callable(getattr(named, "predict", None)):
            raise ModelError(f"{place_of(named, path)}: class Model has no method predict(self, batch).")
        return named
    found = [each for each in public_classes(module) if callable(getattr(each, "predict", None))]
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found) or "none"
        raise ModelError(
            f"{path} must hold one class with a method predict(self, batch), and has {names}; call the one to serve Model."
        )
    return found[0]


def _specs(model: Any, attribute: str, path: Path) -> tuple[TensorSpec, ...]:
    place = f"{place_of(type(model), path)}: {type(model).__name__}.{attribute}"
    # hasattr() would hide an AttributeError that arises inside of a property.
    if inspect.getattr_static(model, attribute, None) is None:
        raise ModelError(f"{place} is missing: it must be a list of (name, dtype, shape).")
    declared = getattr(model, attribute)
    if not isinstance(declared, (list, tuple)) or not declared:
        raise ModelError(f"{place} must be a list of (name, dtype, shape), not {declared!r}.")
    specs = tuple(_spec(each, place) for each in cast("list[Any]", declared))
    if len({spec.name for spec in specs}) < len(specs):
        raise ModelError(f"{place} has one name twice.")
    return specs


def _spec(declared: Any, place: str) -> TensorSpec:
    try:
        name, dtype_like, shape = declared
        dtype = np.dtype(dtype_like)
        dims = tuple(None if dim is None else int(dim) for dim in shape)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{place} must be a list of (name, dtype, shape), but has {declared!r}: {error}") from error
    if not isinstance(name, str) or not (dtype.kind in _NUMBERS or dtype == np.dtype(str)):
        raise ModelError(f"{place} must give each name a dtype of numbers, or str for text, but has {declared!r}.")
    if not dims:
        raise ModelError(f"{place}: the shape of {name!r} must begin with the batch dimension, as in (None, 10).")
    if any(dim is not None and dim < 1 for dim in dims):
        raise ModelError(f"{place}: the shape of {name!r} is {dims}; write None for a dimension that may be any size.")
    return TensorSpec(name, dtype.name, dims)


def _output(spec: TensorSpec, answer: dict[str, Any], rows: int) -> Array:
    if spec.name not in answer:
        raise ValueError(f"predict did not return {spec.name!r}, only {', '.join(map(repr, answer)) or 'nothing'}")
    array = np.asarray(answer[spec.name], dtype=object if spec.is_text else spec.dtype)
    expected = (rows, *(spec.row_shape or ()))
    fits = array.ndim == len(expected) and all(
        dim in (None, size) for dim, size in zip(expected, array.shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"predict returned {spec.name!r} with shape {list(array.shape)} for {rows} rows of {spec.describe()}"
        )
    return array
