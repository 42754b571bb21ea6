"""Agreement of a model in INT8 with the same model in float32, record by record, and the share that a number of records proves.

A logit tolerance is the wrong judge of INT8: rounding moves every value, and answers stay the same. A record agrees if its arg max
is that of float32, or if the user's own metric does not score the record lower.

    def score(outputs, labels):          # accuracyMetric: metric.py:score
        return outputs["probability"].argmax(axis=1) == labels

`outputs` has an array for each output of the model, with a row for each record. `labels` has the rows of the array `labels` in the
calibration data, or is None. The function returns a number for each record, higher is better. A record that has no score in float32
(NaN) proves nothing, and is not counted.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from cluster_serving.node.engines.accuracy import equal
from cluster_serving.node.models.base import Array, ModelError
from cluster_serving.node.models.runtime import TriedRuntime
from cluster_serving.node.models.user_code import execute, faults_of

Judge = Callable[[Mapping[str, Array], Mapping[str, Array], Array | None], NDArray[np.bool_]]
"""Return for each record that can be judged whether found outputs agree with expected ones. Arrays have a row for each record."""

Rest = Literal["f32", "bf16"]
"""Precision of everything in a model that is not in INT8."""

_CONFIDENCE = 0.95
_HALVINGS = 50
_MODULE = "_cluster_serving_metric"


class Agreement(msgspec.Struct, frozen=True):
    """Number of records that were judged, and of the records that agree."""

    agreeing: int
    records: int

    @property
    def share(self) -> float:
        """Share of the records that agree, from 0 to 1; of no records 0."""
        return self.agreeing / self.records if self.records else 0.0

    @property
    def at_least(self) -> float:
        """Share that the records prove with 95 % confidence: the one-sided bound of Clopper and Pearson, which is exact."""
        low, high, differing = 0.0, 1.0, self.records - self.agreeing
        if not self.agreeing:
            return 0.0
        for _ in range(_HALVINGS):
            share = (low + high) / 2
            if _at_most(differing, self.records, 1 - share) < 1 - _CONFIDENCE:
                low = share
            else:
                high = share
        return low

    def described(self) -> str:
        """Return the agreement for people, such as `498 of 500 records agree, 98.7 % or more with 95 % confidence`."""
        return f"{self.agreeing} of {self.records} records agree, {percent(self.at_least)} or more with 95 % confidence"


class Judged(msgspec.Struct, frozen=True):
    """Judgement of a model in INT8.

    `refused`: reason to refuse the model. Empty: the model is proven. `note`: everything else for people. `rest`: precision of
    everything that is not in INT8.
    """

    agreement: Agreement
    refused: str
    note: str
    rest: Rest = "f32"

    def over(self, tried: TriedRuntime) -> TriedRuntime:
        """Return a tried runtime with this judgement in place of the judgement of floats."""
        agreement = self.agreement
        return replace(
            tried,
            arg_max_agreement=agreement.share,
            refused=self.refused,
            records=agreement.records,
            at_least=agreement.at_least,
            note=self.note,
        )


def records_to_prove(share: float) -> int | None:
    """Return the least number of records that prove a share when all of them agree, or `None` for a share of 1."""
    if share >= 1:
        return None
    return max(1, math.ceil(math.log(1 - _CONFIDENCE) / math.log(share))) if share > 0 else 1


def records_needed(share: float, batch: int = 1) -> int | None:
    """Return the least number of records that calibrate and prove a share, half of them each, in whole batches of a fixed size."""
    least = records_to_prove(share)
    return None if least is None else 2 * -(-least // batch) * batch


def percent(share: float) -> str:
    """Return a share in percent, rounded down: a bound must not be promised higher than it is."""
    return f"{math.floor(share * 1000) / 10:g} %"


def same_arg_max(
    expected: Mapping[str, Array], found: Mapping[str, Array], labels: Array | None = None
) -> NDArray[np.bool_]:
    """Return for each record whether every arg max along the last axis of the outputs is the same. A tie in `expected` agrees.

    NaN has to be in the same places, and is no arg max. Outputs of whole numbers have to be equal.

    Raises:
        ModelError: an output has a single value along its last axis.
    """
    rows = len(next(iter(expected.values())))
    agree = np.ones(rows, np.bool_)
    for name, values in expected.items():
        others = found[name]
        if others.shape != values.shape:
            return np.zeros(rows, np.bool_)
        if values.dtype.kind != "f":
            same = values == others
        elif values.ndim < 2 or values.shape[-1] < 2:
            raise ModelError(
                f"output {name!r} has one value, and no arg max to compare: set accuracyMetric to judge INT8 by your own measure"
            )
        else:
            # A model may mask values with -inf.
            is_valid = equal(values, others) | (np.isfinite(others) & ~np.isnan(values))
            ranked, others = (np.where(np.isnan(each), -np.inf, each) for each in (values, others))
            chosen = np.take_along_axis(ranked, others.argmax(axis=-1, keepdims=True), -1)
            same = (chosen == ranked.max(axis=-1, keepdims=True)) & is_valid.all(axis=-1, keepdims=True)
        agree &= same.reshape(rows, -1).all(axis=1)
    return agree


def by_metric(setting: str) -> Judge:
    """Return a judge by the user's own metric.

    Args:
        setting: `/path/to/file.py:function`.

    Raises:
        ModelError: the file is missing or fails, or has no such function. The judge raises it when the function fails.
    """
    file, _, name = setting.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise ModelError(f"accuracyMetric is {setting}, and there is no file {path}.")
    with faults_of(path):
        metric: Any = getattr(execute(path, _MODULE), name, None)
    if not callable(metric):
        raise ModelError(f"accuracyMetric is {setting}, and {path} has no function {name}.")

    def scores(outputs: Mapping[str, Array], labels: Array | None) -> Array:
        rows = len(next(iter(outputs.values())))
        with faults_of(path):
            given = np.asarray(metric(dict(outputs), labels))
        if given.shape != (rows,) or given.dtype.kind not in "biuf":
            raise ModelError(
                f"accuracyMetric is {setting}, and {name} gave {given.dtype} {[*given.shape]} for {rows} records: return a "
                "number for each"
            )
        return given.astype(np.float64)

    def judge(expected: Mapping[str, Array], found: Mapping[str, Array], labels: Array | None) -> NDArray[np.bool_]:
        before, after = scores(expected, labels), scores(found, labels)
        return (after >= before)[~np.isnan(before)]

    return judge


def _at_most(count: int, of: int, chance: float) -> float:
    """Return the probability of at most `count` hits in `of` tries with a `chance` strictly between 0 and 1."""
    log_hit, log_miss = math.log(chance), math.log1p(-chance)
    return math.fsum(
        math.exp(
            math.lgamma(of + 1)
            - math.lgamma(hits + 1)
            - math.lgamma(of - hits + 1)
            + hits * log_hit
            + (of - hits) * log_miss
        )
        for hits in range(count + 1)
    )
