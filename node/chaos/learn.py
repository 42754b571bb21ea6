"""Right answers of the model, learned before any fault, and the comparison of later answers with them."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.protocol.admission import Records
from cluster_serving.client.protocol.requests import Dialect, Fields
from cluster_serving.client.protocol.results import result_of
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.admission import enqueue
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.result import Result

_CHUNK = 16
_NUMBER = re.compile(r"-?\d+\.?\d*(?:[eE][+-]?\d+)?")


class Answers:
    """Right answers of each sample in each dialect.

    Attributes:
        known: right results by dialect and sample.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[Dialect, int], list[Result]] = {}

    def learn(self, dialect: Dialect, sample: int, result: Result) -> bool:
        """Store a result as right, and return True. Return False for an error, or a result unlike the sample's earlier ones."""
        if result.error is not None:
            return False
        known = self.known.setdefault((dialect, sample), [])
        if known and not self.right(dialect, sample, result):
            return False
        known.append(result)
        return True

    def right(self, dialect: Dialect, sample: int, result: Result) -> bool:
        """Return whether a result is right."""
        return any(alike(_answer(result), _answer(each)) for each in self.known.get((dialect, sample), ()))

    def own(self, sample: int, answer: object) -> bool:
        """Return whether an answer of the client, such as that of `predict`, is the model's own."""
        return any(alike(answer, each.value) for each in self.known.get(("native", sample), ()))


def _answer(result: Result) -> object:
    return result.outputs or result.value


def alike(one: Any, other: Any) -> bool:
    """Return whether two answers are equal except for rounding. Neighbours in the batch change the order of a row's sums."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and _close(one, other)
    if isinstance(one, float) or isinstance(other, float):
        return _close(np.asarray(one), np.asarray(other))
    if isinstance(one, str) and isinstance(other, str):
        numbers, others = _NUMBER.findall(one), _NUMBER.findall(other)
        same_text = _NUMBER.split(one) == _NUMBER.split(other)
        return one == other or (same_text and _close(np.array(numbers, float), np.array(others, float)))
    return type(one) is type(other) and bool(one == other)


def _close(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if one.dtype.kind not in "fc":
        return bool(np.array_equal(one, other))
    scale = float(np.max(np.abs(other), initial=0.0, where=np.isfinite(other)))
    return bool(np.allclose(one, other, rtol=1e-3, atol=1e-3 * scale, equal_nan=True))


def ask(
    settings: RedisSettings, job: str, records: Sequence[tuple[str, Fields]], timeout_s: float
) -> Mapping[str, Result]:
    """Send records, and return the results that come in time. The results stay in Redis."""
    link = Link(settings)
    try:
        for first in range(0, len(records), _CHUNK):
            enqueue(link, job, Records([fields for _, fields in records[first : first + _CHUNK]], []))
        found: dict[str, Result] = {}
        deadline_s = time.monotonic() + timeout_s
        while len(found) < len(records) and time.monotonic() < deadline_s:
            for uri, _ in records:
                if uri not in found and (fields := link.call("HGETALL", keys.result_prefix(job) + uri)):
                    found[uri] = result_of(fields, uri)
            time.sleep(0.02)
        return found
    finally:
        link.close()
