"""Records a second that a node can do, learned from the nodes' work. Pure.

A run of the model takes longer the more rows it has: run_s = a + b * rows. At low load a worker runs few rows at a time, and is
busy for a large share of the time all the same, so its busy share alone does not tell the rate of full batches. The line is fitted
to the mean time of each number of rows that was seen in the last hours. As long as the rows hardly vary, the time is taken to be
proportional to the rows, which never promises too much.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

_MEMORY_S = 6 * 3600.0
_GAIN = 0.1  # of a new observation in the mean of its number of rows, at least
_LEVELS = 2  # numbers of rows that are told apart, for each doubling
_RIDGE = 0.1  # variation of the rows, as a share of their mean, at which the fitted slope counts half
_FURTHER = 2.0  # times as many rows as were seen, to which the line is trusted


class NodeWork(NamedTuple):
    """Work of a ready node over the last seconds.

    Attributes:
        workers: number of workers.
        batch: most rows of a run.
        rows: mean rows of a run. 0: no run.
        records_s: records answered a second.
        busy: share of the time that the busiest part works: workers on the mean, reader, or writer.
    """

    workers: int
    batch: int
    rows: float
    records_s: float
    busy: float

    @property
    def in_work(self) -> float:
        """Records that are in a run, on the mean."""
        return self.workers * self.busy * self.rows

    @property
    def run_s(self) -> float:
        """Seconds of a run. 0: no run."""
        return self.in_work / self.records_s if self.records_s else 0.0


class _Level(NamedTuple):
    """Mean rows and seconds of runs with nearly as many rows, the number of observations, and the time of the last one."""

    rows: float = 0.0
    run_s: float = 0.0
    seen: int = 0
    seen_s: float = 0.0

    def after(self, node: NodeWork, now_s: float) -> "_Level":
        gain = max(_GAIN, 1 / (self.seen + 1))
        rows, run_s = self.rows + gain * (node.rows - self.rows), self.run_s + gain * (node.run_s - self.run_s)
        return _Level(rows, run_s, self.seen + 1, now_s)


class Pace:
    """Line of the seconds of a run over its rows."""

    def __init__(self) -> None:
        self._model = ""
        self._workers = self._batch = 0.0
        self._levels: dict[int, _Level] = {}

    def observe(self, now_s: float, model: str, nodes: Sequence[NodeWork]) -> None:
        """Add the work of ready nodes. A new model begins anew."""
        if not nodes:
            return
        if model != self._model:
            self._model = model
            self._levels.clear()
        self._workers = sum(node.workers for node in nodes) / len(nodes)
        self._batch = sum(node.batch for node in nodes) / len(nodes)
        for node in nodes:
            if node.run_s:
                level = round(_LEVELS * math.log2(node.rows))
                self._levels[level] = self._levels.get(level, _Level()).after(node, now_s)
        self._levels = {at: level for at, level in self._levels.items() if now_s - level.seen_s < _MEMORY_S}

    @property
    def rate(self) -> float | None:
        """Records a second of a node whose runs have as many rows as they can. None: no run of this model was seen."""
        levels = self._levels.values()
        if not levels:
            return None
        rows = sum(level.rows for level in levels) / len(levels)
        run_s = sum(level.run_s for level in levels) / len(levels)
        variance = sum((level.rows - rows) ** 2 for level in levels) / len(levels)
        covariance = sum((level.rows - rows) * (level.run_s - run_s) for level in levels) / len(levels)
        proportional, ridge = run_s / rows, (_RIDGE * rows) ** 2
        slope = min(max(0.0, (covariance + ridge * proportional) / (variance + ridge)), proportional)
        most = min(self._batch, _FURTHER * max(level.rows for level in levels))
        return self._workers * most / (run_s + slope * (most - rows))
