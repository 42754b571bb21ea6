"""Load of a node over the last seconds, from the growth of its figures between heartbeats."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from cluster_serving.client.wire.load import Load
from cluster_serving.node.ring.metrics import ANSWER, Figures

_Key = TypeVar("_Key", str, int)
_RATES_S = 10.0
_TIMES_S = 60.0
_OVERLAP_S = 0.5  # a heartbeat may come a little later than its interval


class Sample(NamedTuple):
    """Figures of a node at one time. Every number grows, unless a process is replaced.

    Attributes:
        at_s: time on the monotonic clock.
        figures: counts and measurements of all lanes.
        busy_s: seconds of work of each worker, by name.
        readers_s: seconds of processor time of each reader, by pid.
        writers_s: the same of each writer.
        redis_s: seconds of processor time of Redis' main thread.
        machine_s: seconds of processor time of all processes of the machine, for each core.
        throttled_s: seconds during which the quota held the node back.
    """

    at_s: float
    figures: Figures
    busy_s: Mapping[str, float] = {}
    readers_s: Mapping[int, float] = {}
    writers_s: Mapping[int, float] = {}
    redis_s: float = 0.0
    machine_s: float = 0.0
    throttled_s: float = 0.0


class Recent:
    """Samples of the last minute."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> Load:
        """Add the present sample, and return the load until now."""
        self._samples.append(sample)
        while sample.at_s - self._samples[0].at_s > _TIMES_S + _OVERLAP_S:
            self._samples.popleft()
        first = next(each for each in self._samples if sample.at_s - each.at_s <= _RATES_S + _OVERLAP_S)
        if (seconds := sample.at_s - first.at_s) <= 0:
            return Load(busy=(0.0,) * len(sample.busy_s))
        lately, minute = sample.figures.since(first.figures).counts, sample.figures.since(self._samples[0].figures)
        return Load(
            records_s=(lately["answered"] + lately["failed"]) / seconds,
            errors_s=lately["failed"] / seconds,
            p50_s=minute.quantile(ANSWER, 0.5),
            p99_s=minute.quantile(ANSWER, 0.99),
            rows=lately["rows"] / lately["runs"] if lately["runs"] else 0.0,
            busy=tuple(_shares(first.busy_s, sample.busy_s, seconds)),
            reader=max(_shares(first.readers_s, sample.readers_s, seconds), default=0.0),
            writer=max(_shares(first.writers_s, sample.writers_s, seconds), default=0.0),
            redis=max(0.0, sample.redis_s - first.redis_s) / seconds,
            machine=min(1.0, max(0.0, sample.machine_s - first.machine_s) / seconds),
            throttled=min(1.0, max(0.0, sample.throttled_s - first.throttled_s) / seconds),
        )


def _shares(before: Mapping[_Key, float], after: Mapping[_Key, float], seconds: float) -> list[float]:
    """Return the growth of each number as a share of the time, from 0 to 1. A number that is new has grown from 0."""
    return [min(1.0, max(0.0, value - before.get(key, 0.0)) / seconds) for key, value in after.items()]
