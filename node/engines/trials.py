"""Tries the runtimes that a model may have: how fast each is, and how far from the model's own in float32.

One is held at a time, beside the native backend that others are made of; of the native outputs only the arrays are kept.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import structlog

from cluster_serving.node.engines.accuracy import EQUAL, Difference, compare
from cluster_serving.node.engines.calibration import random_batch, samples
from cluster_serving.node.engines.warm_up import copied, fixed_batch
from cluster_serving.node.models.allocator import give_back
from cluster_serving.node.models.base import Array, Backend, ModelError
from cluster_serving.node.models.runtime import Runtime, TriedRuntime
from cluster_serving.node.processing.options import ImageOptions

log = structlog.get_logger(__name__)

REFERENCE = Runtime("native", "f32")
"""What the others are compared with."""

Make = Callable[[Runtime], Backend]
Batches = Sequence[dict[str, Array]]

_TIE = 1.03
_MOST_ROWS = 256
_MOST_OUTPUT_BYTES = 256 << 20
_LEAST_RUNS, _MOST_RUNS = 3, 50
_TIMING_S = 2.0


class Trials(NamedTuple):
    """On what candidates are tried, and how far they may be off.

    `data` is `calibrationData`, an absolute path; empty: random numbers. `tolerance` is `accuracyTolerance`. `images` is how
    images become rows.
    """

    data: str = ""
    tolerance: float = 0.01
    images: ImageOptions = ImageOptions()


def try_all(make: Make, wanted: Sequence[Runtime], batch: int, trials: Trials) -> tuple[TriedRuntime, ...]:
    """Try some runtimes.

    Args:
        make: loads the model for one of them, or for the reference.
        wanted: those to try.
        batch: rows to run at a time; a model made for a fixed batch gets that.
        trials: on what.

    Returns:
        Each with its figures; nothing where no input is sure to be valid.

    Raises:
        ModelError: the reference cannot be loaded, or the user's data do not fit it.
    """
    reference = make(REFERENCE)
    batches = _batches(reference, batch, trials)
    expected = _expected(reference, batches, trials.data)
    del reference
    candidates: list[TriedRuntime] = []
    for runtime in wanted if expected else ():
        candidates.append(_try(make, runtime, batches[: len(expected)], expected, trials.tolerance))
        log.info("runtime tried", **_described(candidates[-1]))
        give_back()
    return tuple(candidates)


def best(candidates: Sequence[TriedRuntime]) -> Runtime | None:
    """The first of those that are about as fast as the fastest; refused ones only where there are no others, the closest."""
    ran = [each for each in candidates if each.ms is not None]
    fine = [each for each in ran if not each.refused]
    if not ran:
        return None
    if fine:
        fastest_ms = min(each.ms or 0 for each in fine)
        chosen = next(each for each in fine if (each.ms or 0) <= fastest_ms * _TIE)
    else:
        chosen = min(ran, key=lambda each: np.inf if each.relative_error is None else each.relative_error)
        log.warning("what was asked for is less exact than accuracyTolerance", **_described(chosen))
    return Runtime(chosen.engine, chosen.precision)


def _batches(reference: Backend, batch: int, trials: Trials) -> Batches:
    """What the candidates run on; the user's own rows begin again where they do not fill the last batch."""
    batch = fixed_batch(reference) or batch
    if not trials.data:
        made_up = random_batch(reference.inputs, batch)
        return [] if made_up is None else [made_up]
    arrays = samples(Path(trials.data), reference.inputs, trials.images, _MOST_ROWS)
    rows = len(next(iter(arrays.values())))
    return [
        {name: array.take(range(start, start + batch), axis=0, mode="wrap") for name, array in arrays.items()}
        for start in range(0, rows, batch)
    ]


def _expected(reference: Backend, batches: Batches, data: str) -> Batches:
    """What the reference makes of as many batches as there is room for; nothing where it does not run on what was made up."""
    if not batches:
        log.info("nothing to try runtimes on: set calibrationData, or the free shape of an input in modelInputs")
    expected: list[dict[str, Array]] = []
    try:
        for inputs in batches:
            expected.append(copied(reference.run(copied(inputs))))
            if sum(array.nbytes for outputs in expected for array in outputs.values()) > _MOST_OUTPUT_BYTES:
                break
    except Exception as error:  # a model may raise anything
        if data:
            raise ModelError(f"calibrationData {data}: the model fails on it: {_line(error)}") from error
        log.info(
            "nothing to try runtimes on: the model fails on random inputs; set calibrationData", reason=_line(error)
        )
        return []
    return expected


def _try(make: Make, runtime: Runtime, batches: Batches, expected: Batches, tolerance: float) -> TriedRuntime:
    """Load a candidate, compare it, time it, and let it go."""
    try:
        backend = make(runtime)
        found = EQUAL if runtime == REFERENCE else _difference(backend, batches, expected, tolerance)
        ms = _median_ms(backend, batches[0])
    except Exception as error:  # whatever a runtime makes of the model, another one can serve it
        return TriedRuntime(runtime.engine, runtime.precision, refused=_line(error))
    relative_error = None if np.isinf(found.relative_error) else found.relative_error
    refused = found.refused(tolerance)
    return TriedRuntime(runtime.engine, runtime.precision, ms, relative_error, found.arg_max_agreement, refused)


def _difference(backend: Backend, batches: Batches, expected: Batches, tolerance: float) -> Difference:
    """Over all batches, which have as many rows each."""
    each = [
        compare(outputs, backend.run(copied(inputs)), tolerance)
        for outputs, inputs in zip(expected, batches, strict=True)
    ]
    agreement = float(np.mean([one.arg_max_agreement for one in each]))
    return Difference(max(one.relative_error for one in each), agreement)


def _median_ms(backend: Backend, inputs: dict[str, Array]) -> float:
    """Of some runs; the first one of all does not count."""
    inputs = copied(inputs)
    backend.run(inputs)
    times: list[float] = []
    until_s = time.perf_counter() + _TIMING_S
    while len(times) < _LEAST_RUNS or (len(times) < _MOST_RUNS and time.perf_counter() < until_s):
        start_s = time.perf_counter()
        backend.run(inputs)
        times.append(time.perf_counter() - start_s)
    return float(np.median(times)) * 1000


def _described(candidate: TriedRuntime) -> dict[str, object]:
    """For the log."""
    figures = {"ms": candidate.ms, "relative_error": candidate.relative_error}
    told: dict[str, object] = {"engine": candidate.engine, "precision": candidate.precision}
    told |= {name: float(f"{value:.3g}") for name, value in figures.items() if value is not None}
    if candidate.arg_max_agreement is not None:
        told["arg_max_agreement"] = round(candidate.arg_max_agreement, 4)
    return told | ({"refused": candidate.refused} if candidate.refused else {})


def _line(error: Exception) -> str:
    """The first line of what an error says, or its kind."""
    return str(error).strip().split("\n")[0] or type(error).__name__
