"""Trials of the runtimes that a model may have: speed, and difference from the native backend in float32.

One candidate is in memory at a time, beside the native backend, the source of all conversions. Only the arrays of the native
outputs are kept.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import structlog

from cluster_serving.node.engines.accuracy import EQUAL, Difference, compare
from cluster_serving.node.engines.agreement import Judged
from cluster_serving.node.engines.calibration import random_batch, samples
from cluster_serving.node.engines.warm_up import fixed_batch
from cluster_serving.node.models.allocator import give_back
from cluster_serving.node.models.base import Array, Backend, ModelError
from cluster_serving.node.models.runtime import Runtime, TriedRuntime
from cluster_serving.node.processing.options import ImageOptions

log = structlog.get_logger(__name__)

REFERENCE = Runtime("native", "f32")
"""Runtime that the candidates are compared with."""

TIE = 1.03
"""Ratio of two times up to which the more faithful runtime is preferred."""

Make = Callable[[Runtime], Backend]
Batches = Sequence[dict[str, Array]]

_MOST_ROWS = 256
_MOST_BYTES = 256 << 20  # of the inputs, and of the outputs
_LEAST_RUNS, _MOST_RUNS = 3, 50
_TIMING_S, _TIMING_ALONE_S = 2.0, 0.2


class Trials(NamedTuple):
    """Data on which candidates are tried, and their largest accepted error.

    `data` is `calibrationData`, an absolute path. An empty `data` stands for random numbers. `tolerance` is `accuracyTolerance`.
    `images` are the options for decoding images into rows. INT8 is judged by `agreement` (`accuracyAgreement`) and `metric`
    (`accuracyMetric`). `may_keep`: a model made from the user's model may be written to the disk. `patience_s`: seconds that
    quantising may take in all, well below the seconds that a node has to get ready. `by_cpu_time`: candidates are timed by
    processor time, because others take the processor away.
    """

    data: str = ""
    tolerance: float = 0.01
    images: ImageOptions = ImageOptions()
    agreement: float = 0.99
    metric: str = ""
    may_keep: bool = True
    patience_s: float = 240.0
    by_cpu_time: bool = False


def try_all(
    make: Make, wanted: Sequence[Runtime], batch: int, trials: Trials, judged: Mapping[Runtime, Judged] | None = None
) -> tuple[TriedRuntime, ...]:
    """Try runtimes on the same batches.

    Args:
        make: loads the model for a candidate, or for the reference.
        wanted: runtimes to try.
        batch: rows to run at a time. A model made for a fixed batch gets the fixed batch.
        trials: data and tolerance.
        judged: judgements of the runtimes in INT8, which `make` fills. Another judgement of such a runtime does not count.

    Returns:
        The candidates with their figures. Empty where no input is sure to be valid.

    Raises:
        ModelError: the reference cannot be loaded, or the user's data do not fit the model.
    """
    reference = make(REFERENCE)
    batches = _batches(reference, batch, trials)
    expected = _expected(reference, batches, trials.data)
    del reference
    candidates: list[TriedRuntime] = []
    for runtime in wanted if expected else ():
        tried = _try(make, runtime, batches[: len(expected)], expected, trials)
        candidates.append(judged[runtime].over(tried) if judged and runtime in judged else tried)
        log.info("runtime tried", **_described(candidates[-1]))
        give_back()
    return tuple(candidates)


def best(candidates: Sequence[TriedRuntime]) -> Runtime | None:
    """Return the first candidate that is about as fast as the fastest, or `None` if no candidate ran.

    If every candidate that ran was refused, return the candidate with the smallest error.
    """
    ran = [each for each in candidates if each.ms is not None]
    fine = [each for each in ran if not each.refused]
    if not ran:
        return None
    if fine:
        fastest_ms = min(each.ms or 0 for each in fine)
        chosen = next(each for each in fine if (each.ms or 0) <= fastest_ms * TIE)
    else:
        chosen = min(ran, key=lambda each: np.inf if each.relative_error is None else each.relative_error)
        log.warning("the chosen runtime is less exact than accuracyTolerance", **_described(chosen))
    return chosen.runtime


def _batches(reference: Backend, batch: int, trials: Trials) -> Batches:
    """Return the batches for the candidates. The user's rows start over to fill the last batch."""
    batch = fixed_batch(reference) or batch
    if not trials.data:
        made_up = random_batch(reference.inputs, batch)
        return [] if made_up is None else [made_up]
    arrays = samples(Path(trials.data), reference.inputs, trials.images, _MOST_ROWS, _MOST_BYTES)
    axes = {spec.name: spec.batch_axis for spec in reference.inputs}
    rows = next((array.shape[axis] for name, array in arrays.items() if (axis := axes.get(name, 0)) is not None), None)
    if rows is None:
        return [arrays]

    def some(name: str, start: int) -> Array:
        axis, array = axes.get(name, 0), arrays[name]
        return array if axis is None else array.take(range(start, start + batch), axis=axis, mode="wrap")

    return [{name: some(name, start) for name in arrays} for start in range(0, rows, batch)]


def _expected(reference: Backend, batches: Batches, data: str) -> Batches:
    """Return the outputs of the reference for as many batches as `_MOST_BYTES` allows.

    The result is empty if the reference fails on random numbers, or without batches.
    """
    if not batches:
        log.info("nothing to try runtimes on: set calibrationData, or the free shape of an input in modelInputs")
    expected: list[dict[str, Array]] = []
    try:
        for inputs in batches:
            outputs = reference.run(inputs)  # valid until the next run
            expected.append({name: array.copy() for name, array in outputs.items()})
            if sum(array.nbytes for outputs in expected for array in outputs.values()) > _MOST_BYTES:
                break
    except Exception as error:  # a model may raise anything
        if data:
            raise ModelError(f"calibrationData {data}: the model fails on it: {_line(error)}") from error
        log.info(
            "nothing to try runtimes on: the model fails on random inputs; set calibrationData", reason=_line(error)
        )
        return []
    return expected


def _try(make: Make, runtime: Runtime, batches: Batches, expected: Batches, trials: Trials) -> TriedRuntime:
    """Load, compare and time a candidate, then free the candidate."""
    try:
        backend = make(runtime)
        found = EQUAL
        if runtime != REFERENCE:
            each = [
                compare(outputs, backend.run(inputs), trials.tolerance)
                for outputs, inputs in zip(expected, batches, strict=True)
            ]
            # All batches have the same number of rows, so their shares have the same weight.
            agreement = float(np.mean([one.arg_max_agreement for one in each]))
            found = Difference(max(one.relative_error for one in each), agreement)
        ms = _median_ms(backend, batches[0], trials)
    except Exception as error:  # a failure rules out one runtime only
        return TriedRuntime(runtime.engine, runtime.precision, refused=_line(error))
    relative_error = None if np.isinf(found.relative_error) else found.relative_error
    refused = found.refused(trials.tolerance)
    return TriedRuntime(runtime.engine, runtime.precision, ms, relative_error, found.arg_max_agreement, refused)


def time_alone(backend: Backend, batch: int, trials: Trials) -> float | None:
    """Return the median time in ms of a batch of the user's data. None: the model fails on the batch."""
    try:
        return _median_ms(backend, _batches(backend, batch, trials)[0], trials, _TIMING_ALONE_S)
    except Exception as error:  # a model may raise anything
        log.info("the model is not timed", reason=_line(error))
        return None


def _median_ms(backend: Backend, inputs: dict[str, Array], trials: Trials, seconds: float = _TIMING_S) -> float:
    clock = time.process_time if trials.by_cpu_time else time.perf_counter
    backend.run(inputs)  # the first run does not count
    times: list[float] = []
    until_s = clock() + seconds
    while len(times) < _LEAST_RUNS or (len(times) < _MOST_RUNS and clock() < until_s):
        start_s = clock()
        backend.run(inputs)
        times.append(clock() - start_s)
    return float(np.median(times)) * 1000


def _described(candidate: TriedRuntime) -> dict[str, object]:
    figures = {"ms": candidate.ms, "relative_error": candidate.relative_error}
    told: dict[str, object] = {"engine": candidate.engine, "precision": candidate.precision}
    told |= {name: float(f"{value:.3g}") for name, value in figures.items() if value is not None}
    if candidate.arg_max_agreement is not None:
        told["arg_max_agreement"] = round(candidate.arg_max_agreement, 4)
    return told | ({"refused": candidate.refused} if candidate.refused else {})


def _line(error: Exception) -> str:
    """Return the first line of an error's message, or the type of an error without message."""
    return str(error).strip().split("\n")[0] or type(error).__name__
