"""Counters and measures of a lane's processes, in shared memory. Each number has one writer, and outlives the writer."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any, NamedTuple

READER, WRITER, FIRST_WORKER = 0, 1, 2
"""Rows of `Ring.counters` and `Ring.measures`."""


TIME_DIGITS = 13
"""Digits of the milliseconds in an id of Redis' clock, until the year 2286. A caller may choose ids of its own."""


class Count(IntEnum):
    """Columns of `Ring.counters`."""

    READ = 0  # reader: entries taken from the stream
    REFUSED = 1  # reader: entries among READ that were answered with an error at once
    REDELIVERED = 2  # reader: entries taken again after a reader or its node died
    RUNS = 3  # worker: runs of the model
    ROWS = 4  # worker: rows of the runs
    ANSWERED = 5  # writer: records finished with a result
    FAILED = 6  # writer: records finished with an error
    REPEATED = 7  # writer: records that had been finished before
    DEAD = 8  # writer: failed records that became dead letters
    EXPIRED = 9  # writer: failed records whose deadline had passed
    RECONNECTS = 10  # reader, writer: connections to Redis after the first one
    BOUND_BY_ORDER = 11  # reader: records whose several inputs were bound by order, because no name was the model's
    BUSY_US = 12  # every process: microseconds in which it had work, with BLOCKED_US
    BLOCKED_US = 13  # reader: microseconds of waiting for a worker or a slot. Writer: for Redis
    DECODE_US = 14  # worker: microseconds of decoding inputs
    STORE_US = 15  # worker: microseconds of processing and storing outputs
    FILL_US = 16  # writer: microseconds from the read of a record until its batch was closed, over all records
    WAIT_US = 17  # writer: the same until a worker began
    RUN_US = 18  # writer: the same in the worker
    PUBLISH_US = 19  # writer: the same until the writer began
    WRITE_US = 20  # writer: the same until Redis had the result
    SPANS_LOST = 21  # writer: spans of OpenTelemetry that were thrown away
    EMPTIED = 22  # reader: times that entries came while the lane held none
    EMPTY_US = 23  # reader: microseconds before, since the last batch was published
    READ_BYTES = 24  # reader: bytes of the entries taken from the stream, as they came over the connection


COUNTER_CELLS = 32
"""Number of cells in a row of `Ring.counters`: four cache lines, so that no line is written by two processes."""


_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Measure(NamedTuple):
    """Cells of a histogram in a row of `Ring.measures`: a count for each bound, a count above all bounds, and the sum.

    A value belongs to the lowest bound that is not below the value.
    """

    name: str
    bounds: tuple[float, ...]
    first: int

    @property
    def sum(self) -> int:
        """Index of the cell of the sum."""
        return self.first + len(self.bounds) + 1

    def observe(self, cells: "memoryview[float]", value: float, times: int = 1) -> None:
        """Count a value that came `times` times, in the process's row `cells`."""
        cells[self.first + bisect_left(self.bounds, value)] += times
        cells[self.first + len(self.bounds) + 1] += value * times

    def described(self, cells: Sequence[float]) -> dict[str, Any]:
        """Return for the heartbeat: the bounds, the number of values at each bound (last: above all bounds), and the sum."""
        counts = [round(count) for count in cells[self.first : self.sum]]
        return {"le": self.bounds, "counts": counts, "sum": cells[self.sum]}


QUEUE_WAIT = Measure("queue_wait", _SECONDS, 0)
"""Reader: seconds from the XADD of a record until its batch was closed."""
INFERENCE = Measure("inference", _SECONDS, QUEUE_WAIT.sum + 1)
"""Worker: seconds of one run of the model, failed runs included."""
WRITE = Measure("write", _SECONDS, INFERENCE.sum + 1)
"""Writer: seconds of one call of `finish.lua` that Redis answered."""
BATCH_ROWS = Measure("batch_rows", _ROWS, WRITE.sum + 1)
"""Worker: rows of one run."""

ANSWER = Measure("answer", _SECONDS, BATCH_ROWS.sum + 1)
"""Writer: seconds from the XADD of a record until its result was published."""

MEASURES = (QUEUE_WAIT, INFERENCE, WRITE, BATCH_ROWS, ANSWER)
MEASURE_CELLS = ANSWER.sum + 1
"""Number of cells in a row of `Ring.measures`."""


class Figures:
    """Counters, by name, and measures, by cell, of one or several processes. Figures can be added.

    Args:
        counts: counters by name.
        cells: cells as in a row of `Ring.measures`.
    """

    def __init__(
        self, counts: Mapping[str, int] | None = None, cells: Sequence[float] = (0.0,) * MEASURE_CELLS
    ) -> None:
        self.counts = Counter(counts)
        self._cells = cells

    def __add__(self, other: "Figures") -> "Figures":
        counts = Counter(self.counts)
        counts.update(other.counts)
        return Figures(counts, _summed((self._cells, other._cells)))

    def since(self, earlier: "Figures") -> "Figures":
        """Return the figures that have come since earlier figures."""
        counts = {name: count - earlier.counts[name] for name, count in self.counts.items()}
        pairs = zip(self._cells, earlier._cells, strict=True)
        return Figures(counts, [cell - before for cell, before in pairs])

    def total(self, measure: Measure) -> float:
        """Return the sum of a measure's values."""
        return self._cells[measure.sum]

    def times(self, measure: Measure) -> float:
        """Return the number of a measure's values."""
        return sum(self._cells[measure.first : measure.sum])

    def quantile(self, measure: Measure, share: float) -> float:
        """Return the value that a share of a measure's values did not exceed, interpolated within its bucket.

        The highest bound stands for all values above. Without values the result is 0.
        """
        counts = self._cells[measure.first : measure.sum - 1]
        rank = share * self.times(measure)
        for (lower, upper), count in zip(pairwise((0.0, *measure.bounds)), counts, strict=True):
            if count and rank <= count:
                return lower + (upper - lower) * rank / count
            rank -= count
        return measure.bounds[-1] if rank > 0 else 0.0

    @classmethod
    def of(cls, counters: Sequence[Sequence[int]], measures: Sequence[Sequence[float]]) -> "Figures":
        """Return the figures of all processes of a lane."""
        counts = {count.name.lower(): sum(process[count] for process in counters) for count in Count}
        return cls(counts, _summed(measures))

    def described(self) -> dict[str, Any]:
        """Return the figures as a heartbeat carries them."""
        return {**self.counts, "histograms": {measure.name: measure.described(self._cells) for measure in MEASURES}}


def _summed(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) for column in zip(*rows, strict=True)]


def observe_ages(measure: Measure, cells: "memoryview[float]", ids: Sequence[bytes], now_ms: float) -> None:
    """Count the seconds since the XADD of each entry, at `now_ms` on Redis' clock: 0 for an id that a caller has chosen."""
    ids, at = sorted(ids), 0
    while at < len(ids):
        # Few ids differ in their milliseconds, as clients enqueue many at a time.
        head = ids[at][:TIME_DIGITS]
        end = bisect_right(ids, head + b"~", at)
        waited_ms = 0 if b"-" in head else now_ms - int(head)
        measure.observe(cells, max(0.0, waited_ms / 1000), end - at)
        at = end
