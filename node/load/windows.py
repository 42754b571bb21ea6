"""Windows of a load: answers of all sending processes second by second, and the test whether the load has settled. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_serving.node.load.messages import OK, Sample, Tick

WINDOW_S = 1.0
"""Shortest window."""
STABLE = 8
"""Windows of a load that ends once it is stable: compared half with half, and then the result."""
FEWEST = 4
"""Windows that tell whether a load is stable."""
TOLERANCE = 0.05
"""Largest difference between the halves of a stable load, as a share."""

_LONGEST_S = 10.0
_LATE_S = 0.1
_SIZE = np.dtype(np.float64).itemsize
_LEAST = 10  # answers of a window that is not longer than it must be

Times = NDArray[np.float64]


@dataclass
class Window:
    """Answers that came between two times.

    Attributes:
        seconds: length of the window.
        took_s: seconds from when each rightly answered request was due to its answer.
        failed: failed requests by code.
        samples: stages of some of the answers.
        busy: share of a core that the busiest sending process used.
        late_s: longest time for which a request was due and not sent.
        under_way: requests at the end that were sent and have no answer.
        unsent: requests at the end that were due and not sent.
        oldest_s: time since the oldest of both was due.
    """

    seconds: float
    took_s: Times
    failed: Counter[str]
    samples: list[Sample]
    busy: float
    late_s: float
    under_way: int
    unsent: int
    oldest_s: float

    @property
    def rate(self) -> float:
        """Requests answered rightly a second."""
        return self.took_s.size / self.seconds

    @property
    def is_behind(self) -> bool:
        """True if requests were sent so late that no pause of the machine explains it."""
        return bool(self.unsent) and self.late_s > _LATE_S

    @property
    def p50_s(self) -> float:
        """Median time to an answer. Infinite without an answer."""
        return float(np.median(self.took_s)) if self.took_s.size else np.inf


class Windows:
    """Windows of a load.

    Args:
        processes: number of sending processes.
        least: answers that a window waits for, so that windows of slow answers are not empty.
    """

    def __init__(self, processes: int, least: int = 0) -> None:
        self._ticks: list[list[Tick]] = [[] for _ in range(processes)]  # of each process, not yet in a window
        self._least = max(_LEAST, least)
        self.windows: list[Window] = []
        self.messages: dict[str, str] = {}
        """Text of the first error of each code."""

    def add(self, process: int, tick: Tick) -> bool:
        """Add a tick of a process, and return whether a window has become full."""
        self._ticks[process].append(tick)
        self.messages = tick.messages | self.messages
        lengths_s = [sum(tick.until_s - tick.since_s for tick in ticks) for ticks in self._ticks]
        if min(lengths_s) < WINDOW_S:
            return False
        answers = sum(len(done) for ticks in self._ticks for tick in ticks for done in tick.done_s.values()) // _SIZE
        if answers < self._least and min(lengths_s) < _LONGEST_S:
            return False
        self.windows.append(_window(self._ticks, float(np.mean(lengths_s))))
        for ticks in self._ticks:
            ticks.clear()
        return True


def _window(of_processes: Sequence[Sequence[Tick]], seconds: float) -> Window:
    ticks = [tick for own in of_processes for tick in own]
    right = [_times(tick.done_s[OK]) - _times(tick.due_s[OK]) for tick in ticks if OK in tick.done_s]
    failed = Counter[str]()
    for tick in ticks:
        failed.update({code: len(done) // _SIZE for code, done in tick.done_s.items() if code != OK})
    return Window(
        seconds=seconds,
        took_s=np.concatenate(right) if right else np.empty(0),
        failed=failed,
        samples=[sample for tick in ticks for sample in tick.samples],
        busy=max(float(np.mean([tick.busy for tick in own])) for own in of_processes),
        late_s=max(tick.late_s for tick in ticks),
        under_way=sum(own[-1].under_way for own in of_processes),
        unsent=sum(own[-1].unsent for own in of_processes),
        oldest_s=max(own[-1].oldest_s for own in of_processes),
    )


def _times(packed: bytes) -> Times:
    return np.frombuffer(packed, np.float64)


def is_stable(windows: Sequence[Window], *, is_open: bool) -> bool:
    """Return whether a load has settled: the medians of both halves of the windows differ by 5 % at most.

    Args:
        windows: windows of the load, in order. Less than `FEWEST` are too few.
        is_open: compare the median latency of the windows, because the rate is given. Otherwise compare their rate.
    """
    if len(windows) < FEWEST:
        return False
    half = len(windows) // 2
    figures = [window.p50_s if is_open else window.rate for window in windows]
    before, after = np.median(figures[:half]), np.median(figures[-half:])
    return bool(0 < after < np.inf and abs(after - before) <= TOLERANCE * before)
