"""Which runtime runs the model: its own, or OpenVINO.

native     the backend of the model's format
openvino   OpenVINO, with the names, the order and the dtypes of the native backend
auto       both run the same random batch; where they agree, the faster one stays
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import structlog

from cluster_serving.node.models import detect
from cluster_serving.node.models.base import Array, Backend, LoadOptions, ModelError
from cluster_serving.node.models.chosen_outputs import ChosenOutputs
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.warm_up import copied, filled, fixed_batch
from cluster_serving.node.specs import Engine, Runtime

log = structlog.get_logger(__name__)

_RTOL = 1e-3
# Of the largest value of an output: sums of float32 in another order differ by 1e-6 of it, bfloat16 by 1e-2.
_ATOL = 1e-4
_LEAST_RUNS, _MOST_RUNS = 3, 50
_TIMING_S = 2.0


class Agreement(NamedTuple):
    """How far two engines agree: `largest_difference` of any two values, infinite where they cannot be compared."""

    agree: bool
    largest_difference: float


def load(detected: Detected, options: LoadOptions, runtime: Runtime, batch: int) -> tuple[Backend, Runtime]:
    """Load a model with the runtime that is set, or with the better one.

    Args:
        detected: the model on disk.
        options: for both engines.
        runtime: the setting.
        batch: rows to compare the engines on; a model made for a fixed batch gets that.

    Returns:
        The loaded model, and what runs it.

    Raises:
        ModelError: the native backend cannot load the model, or the engine is "openvino" and OpenVINO cannot.
    """
    backend, engine = _load(detected, options, runtime.engine, batch)
    if options.outputs and detected.backend != "tensorflow":  # which cuts its graph to them
        backend = ChosenOutputs(backend, options.outputs)
    return backend, Runtime(engine, runtime.precision)


def _load(detected: Detected, options: LoadOptions, engine: Engine, batch: int) -> tuple[Backend, Engine]:
    native = detect.load(detected, options)
    if engine == "native" or detected.backend == "openvino":
        return native, "openvino" if engine == "openvino" else "native"
    if engine == "openvino":
        return _converted(detected, native, options), "openvino"
    return _faster(detected, native, options, batch)


def compare(expected: Mapping[str, Array], found: Mapping[str, Array]) -> Agreement:
    """Whether the outputs of two engines for the same batch agree.

    Values agree within a thousandth of themselves or a ten-thousandth of the output's largest; NaN agrees with NaN. Along the last
    axis both have the same arg max, unless the two candidates are a tie. Whole numbers and booleans are equal.
    """
    if expected.keys() != found.keys():
        return Agreement(False, np.inf)
    each = [_compare(array, found[name]) for name, array in expected.items()]
    return Agreement(all(one.agree for one in each), max(one.largest_difference for one in each))


def _compare(expected: Array, found: Array) -> Agreement:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return Agreement(False, np.inf)
    a, b = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinity minus infinity: equal, as the test before tells
        difference = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
    largest = float(np.nan_to_num(difference, nan=np.inf).max(initial=0))
    if expected.dtype.kind != "f":
        return Agreement(largest == 0, largest)
    atol = _ATOL * float(np.abs(a[np.isfinite(a)]).max(initial=0))
    close = np.allclose(b, a, rtol=_RTOL, atol=atol, equal_nan=True)
    return Agreement(close and _same_arg_max(a, b, atol), largest)


def _same_arg_max(a: Array, b: Array, tie: float) -> bool:
    if a.ndim < 2 or a.size == 0:
        return True
    best, other = (array.argmax(axis=-1, keepdims=True) for array in (a, b))
    lost = np.take_along_axis(a, best, -1) - np.take_along_axis(a, other, -1)
    return bool(np.all((best == other) | (lost <= tie)))


def _converted(detected: Detected, native: Backend, options: LoadOptions) -> Backend:
    try:
        from cluster_serving.node.models import conversion
    except ImportError as error:
        raise ModelError(
            f"the engine openvino needs the package openvino, which cannot be imported here ({error}): "
            "pip install 'cluster-serving[openvino]', or set engine: native"
        ) from error
    return conversion.convert(detected, native, options)


def _faster(detected: Detected, native: Backend, options: LoadOptions, batch: int) -> tuple[Backend, Engine]:
    inputs = filled(native, fixed_batch(native) or batch, _Random())
    if inputs is None:
        log.info(
            "engine chosen", engine="native", reason="inputs have a free shape (modelInputs can fix it), or are text"
        )
        return native, "native"
    try:
        converted = _converted(detected, native, options)
        agreement = compare(native.run(copied(inputs)), converted.run(inputs))
    except Exception as error:  # whatever OpenVINO makes of the model, its own backend can serve it
        log.info("engine chosen", engine="native", reason=str(error).split("\n")[0])
        return native, "native"
    openvino_ms, native_ms = _median_ms(converted, inputs), _median_ms(native, inputs)
    engine: Engine = "openvino" if agreement.agree and openvino_ms < native_ms else "native"
    log.info(
        "engine chosen",
        engine=engine,
        native_ms=round(native_ms, 3),
        openvino_ms=round(openvino_ms, 3),
        agree=agreement.agree,
        largest_difference=float(f"{agreement.largest_difference:.2g}"),
    )
    return converted if engine == "openvino" else native, engine


class _Random:
    """Fills arrays: floats from 0 to 1, whole numbers 0 or 1; the same ones every time."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(0)

    def __call__(self, shape: tuple[int, ...], dtype: str) -> Array:
        if np.dtype(dtype).kind == "f":
            return self._generator.random(shape).astype(dtype)
        return self._generator.integers(0, 2, shape).astype(dtype)


def _median_ms(backend: Backend, inputs: dict[str, Array]) -> float:
    """Of some runs; the first one of all has been before."""
    times: list[float] = []
    until_s = time.perf_counter() + _TIMING_S
    while len(times) < _LEAST_RUNS or (len(times) < _MOST_RUNS and time.perf_counter() < until_s):
        start_s = time.perf_counter()
        backend.run(inputs)
        times.append(time.perf_counter() - start_s)
    return float(np.median(times)) * 1000
