"""Models that are a Python class of the user's own.

    class Model:
        inputs = [("image", "float32", (None, 28, 28))]
        outputs = [("probability", "float32", (None, 10))]

        def load(self):                # optional: called once, before anything else
            self.weights = numpy.load(Path(__file__).parent / "weights.npy")

        def predict(self, batch):      # {"image": array} -> {"probability": array}, rows first
            ...

The class is called `Model`, or it is the only public class of the file with a method `predict`. Inputs of dtype `str` come as
arrays of `str` objects; a `None` in a shape may be any size.
"""

import inspect
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from cluster_serving.node.models.base import Array, ModelError, TensorSpec
from cluster_serving.node.models.detect import Detected

_MODULE = "_cluster_serving_model"
_NUMBERS = "biuf"


class PythonBackend:
    """An object of the user's class."""

    def __init__(self, model: Any, path: Path) -> None:
        self.inputs = _specs(model, "inputs", path)
        self.outputs = _specs(model, "outputs", path)
        self._model = model

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Call `predict` once; what it returns is cast to the declared dtypes.

        Raises:
            ValueError: an output is missing, or has another shape than declared or another number of rows.
            Exception: whatever `predict` raises.
        """
        rows = len(batch[self.inputs[0].name])
        answer = self._model.predict(batch)
        if not isinstance(answer, dict):
            raise ValueError(f"predict must return a dict of arrays, not {type(answer).__name__}")
        arrays = cast("dict[str, Any]", answer)
        return {spec.name: _output(spec, arrays, rows) for spec in self.outputs}


def load(detected: Detected, threads: int, precision: str = "f32") -> PythonBackend:
    """Execute the user's file and make its model.

    Args:
        detected: where the file is; other modules in its directory can be imported by it.
        threads: without effect: numerical libraries take the thread count from the process's environment.
        precision: without effect.

    Raises:
        ModelError: the file fails, or its class is not as it should be; the message says where.
    """
    path = detected.definition.resolve()
    with _faults_of(path):
        model_class = _model_class(_execute(path), path)
        model = model_class()
        prepare = getattr(model, "load", None)
        if prepare is not None:
            prepare()
        return PythonBackend(model, path)


@contextmanager
def _faults_of(path: Path) -> Generator[None, None, None]:
    """Turns what the user's code raises into one sentence with file and line."""
    try:
        yield
    except ModelError:
        raise
    except (Exception, SystemExit) as error:
        text = str(error).split("\n")[0]
        # A SyntaxError's own text ends with the place, which is named already.
        reason = error.msg if isinstance(error, SyntaxError) else text
        raise ModelError(f"{_place(error, path)}: {type(error).__name__}: {reason}") from error


def _place(error: BaseException, path: Path) -> str:
    """The user's line that failed, in the file or in a module beside it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(path.parent)]
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else str(path)


def _execute(path: Path) -> ModuleType:
    # In front, as Python does for a script: a helper module beside the file wins over an installed one of its name.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    loader = SourceFileLoader(_MODULE, str(path))
    spec = ModuleSpec(_MODULE, loader, origin=str(path))
    spec.has_location = True  # the module gets its __file__, to find what lies beside it
    module = module_from_spec(spec)
    sys.modules[_MODULE] = module  # dataclasses and pickle look a class's module up there
    loader.exec_module(module)
    return module


def _model_class(module: ModuleType, path: Path) -> type[Any]:
    named = getattr(module, "Model", None)
    if inspect.isclass(named):
        if not callable(getattr(named, "predict", None)):
            raise ModelError(f"{_place_of(named, path)}: class Model has no method predict(self, batch).")
        return named
    found = [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and not name.startswith("_")
        and value.__module__ == module.__name__
        and callable(getattr(value, "predict", None))
    ]
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found) or "none"
        raise ModelError(
            f"{path} must hold one class with a method predict(self, batch), and has {names}; call the one to serve Model."
        )
    return found[0]


def _place_of(model_class: type[Any], path: Path) -> str:
    try:
        return f"{inspect.getsourcefile(model_class)}, line {inspect.getsourcelines(model_class)[1]}"
    except (OSError, TypeError):  # made at run time: no line holds it
        return str(path)


def _specs(model: Any, attribute: str, path: Path) -> tuple[TensorSpec, ...]:
    place = f"{_place_of(type(model), path)}: {type(model).__name__}.{attribute}"
    # Not hasattr(): it would hide an AttributeError that arises inside of a property.
    if inspect.getattr_static(model, attribute, None) is None:
        raise ModelError(f"{place} is missing: it must be a list of (name, dtype, shape).")
    declared = getattr(model, attribute)
    if not isinstance(declared, (list, tuple)) or not declared:
        raise ModelError(f"{place} must be a list of (name, dtype, shape), not {declared!r}.")
    specs = tuple(_spec(each, place) for each in cast("list[Any]", declared))
    if len({spec.name for spec in specs}) < len(specs):
        raise ModelError(f"{place} has one name twice.")
    if attribute == "outputs" and any(spec.is_text for spec in specs):
        raise ModelError(f"{place} has text, and only numbers can be sent back.")
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
    return TensorSpec(name, dtype.name, dims)


def _output(spec: TensorSpec, answer: dict[str, Any], rows: int) -> Array:
    if spec.name not in answer:
        raise ValueError(f"predict did not return {spec.name!r}, only {', '.join(map(repr, answer)) or 'nothing'}")
    array = np.asarray(answer[spec.name], dtype=spec.dtype)
    expected = (rows, *spec.row_shape)
    fits = array.ndim == len(expected) and all(
        dim in (None, size) for dim, size in zip(expected, array.shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"predict returned {spec.name!r} with shape {list(array.shape)} for {rows} rows of {spec.describe()}"
        )
    return array
