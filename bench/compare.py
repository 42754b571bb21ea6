"""Whether one result file of a bench is better or worse than another, figure by figure.

The ratio is that of the medians over the rounds. Its interval comes from drawing the rounds of each file anew, with replacement
(bootstrap, percentiles): what lies wholly on one side of what is tolerated is sure. Files of one round have no interval, and
nothing that they say is sure.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.report import Figures

_DRAWS = 10_000
_CONFIDENCE = 0.95
_LOWER = re.compile(
    r"cpu|latency|(^|[._])(p\d+(_\d+)?|failed|refused|unanswered|late|lost|slowest|wasted)([._]|$)"
    r"|_(ns|us|ms|s|mb|bytes)$|predict\.floor_ratio$"
)
_HIGHER = re.compile(r"_per_s$|ratio$|(^|[._])of_\w+$|goodput")


class Comparison(NamedTuple):
    """One figure of both files: medians, their ratio B / A and its interval, and what that means."""

    name: str
    a: float
    b: float
    ratio: float
    low: float
    high: float
    verdict: str


def compare(a: Sequence[Figures], b: Sequence[Figures], tolerance: float) -> list[Comparison]:
    """The figures that all rounds of both have, in the order of A.

    Args:
        a: the rounds of the file before.
        b: those of the file after.
        tolerance: a share; what changes by less is the same.
    """
    both = [name for name in a[0] if all(name in figures for figures in (*a, *b))]
    return [_compared(name, [each[name] for each in a], [each[name] for each in b], tolerance) for name in both]


def direction(name: str) -> int:
    """1: more is better, -1: less is, 0: the figure says nothing of the kind (a growth may be below zero). By its name."""
    if name.endswith("_per_s"):
        return 1
    if _LOWER.search(name):
        return -1
    return 1 if _HIGHER.search(name) else 0


def interval(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Where the ratio of the medians of B and A lies, with a confidence of 95 %; anywhere, where there is one round of either."""
    if min(len(a), len(b)) < 2:
        return 0.0, np.inf
    random = np.random.default_rng(0)
    ratios = _ratio(_drawn(random, b), _drawn(random, a))
    low, high = np.quantile(ratios, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2], method="inverted_cdf")
    return float(low), float(high)


def _compared(name: str, a: Sequence[float], b: Sequence[float], tolerance: float) -> Comparison:
    middle_a, middle_b = np.median(a), np.median(b)
    low, high = interval(a, b)
    ratio = float(_ratio(middle_b, middle_a))
    return Comparison(name, float(middle_a), float(middle_b), ratio, low, high, _verdict(name, low, high, tolerance))


def _verdict(name: str, low: float, high: float, tolerance: float) -> str:
    better = direction(name)
    if not better:
        return ""
    if low > 1 + tolerance or high < 1 - tolerance:
        return "better" if (low > 1) == (better > 0) else "worse"
    return "same" if low >= 1 - tolerance and high <= 1 + tolerance else "unsure"


def _drawn(random: np.random.Generator, values: Sequence[float]) -> NDArray[np.float64]:
    drawn: NDArray[np.float64] = np.median(random.choice(np.array(values), (_DRAWS, len(values))), axis=1)
    return drawn


def _ratio(b: NDArray[np.float64] | np.float64, a: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    """B / A, where nothing beside nothing is the same."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.equal(a, b), 1.0, np.divide(b, a))
