"""Times in log-scaled buckets: the bounds, and figures computed from the counts."""

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

LE_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
"""Upper bounds of the buckets for Prometheus, in seconds."""

# Largest ratio of a bound to the bound before: a time within a bucket is known to 5 %.
_FINENESS = 1.1
_LEAST_S, _MOST_S = 1e-5, 120.0


def _bounds() -> list[float]:
    bounds = [_LEAST_S]
    for lower, upper in pairwise((_LEAST_S, *LE_S, _MOST_S)):
        steps = math.ceil(math.log(upper / lower) / math.log(_FINENESS))
        bounds += [lower * (upper / lower) ** (step / steps) for step in range(1, steps)]
        bounds.append(upper)
    return bounds


BOUNDS_S = _bounds()
"""Upper bounds of all buckets but the last, in seconds. `LE_S` are among the bounds."""

_LE_AT = [BOUNDS_S.index(bound) for bound in LE_S]


class Times(msgspec.Struct, frozen=True):
    """Times that a timer has observed.

    Attributes:
        counts: number of times in each bucket, since the start.
        total_s: sum of the times since the start.
        recent: number of times in each bucket, in the last five to ten minutes, as for all attributes below.
        recent_s: sum of the times.
        squares: sum of the squares of the times.
        least_s: shortest time, or 0 without times.
        most_s: longest time.
    """

    counts: Numbers
    total_s: float
    recent: Numbers
    recent_s: float
    squares: float
    least_s: float
    most_s: float

    @property
    def count(self) -> int:
        """Number of times since the start."""
        return int(self.counts.sum())

    @property
    def mean_s(self) -> float:
        """Mean of the recent times, or 0 without recent times."""
        return self.recent_s / max(float(self.recent.sum()), 1)

    @property
    def deviation_s(self) -> float:
        """Standard deviation of the recent times."""
        variance = self.squares / max(float(self.recent.sum()), 1) - self.mean_s**2
        return math.sqrt(max(variance, 0))

    def quantile_s(self, share: float) -> float:
        """Return the time that `share` of the recent times did not exceed, to 5 %, or 0 without recent times."""
        ranks = self.recent.cumsum()
        rank = share * ranks[-1]
        at = int(np.searchsorted(ranks, rank))
        lower = BOUNDS_S[at - 1] if at else 0.0
        upper = BOUNDS_S[at] if at < len(BOUNDS_S) else self.most_s
        inside = (rank - ranks[at] + self.recent[at]) / max(self.recent[at], 1)
        return float(min(max(lower + inside * (upper - lower), self.least_s), self.most_s))

    def up_to(self) -> list[int]:
        """Return the number of times up to each of `LE_S`, and of all times, since the start."""
        ranks = self.counts.cumsum()
        return [int(ranks[at]) for at in (*_LE_AT, -1)]


def cumulative(bounds: Sequence[float], ranks: Sequence[float]) -> list[tuple[str, float]]:
    """Return the buckets of a histogram for Prometheus: upper bound as text, and the number of values up to the bound."""
    return list(zip([*map(str, map(float, bounds)), "+Inf"], ranks, strict=True))


NONE = Times(np.zeros(len(BOUNDS_S) + 1), 0, np.zeros(len(BOUNDS_S) + 1), 0, 0, 0, 0)
"""Times of a timer that has observed nothing."""
