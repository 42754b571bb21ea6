"""Comparison of two results, figure by figure: better, worse, the same or unsure.

The ratio is the ratio of the medians over the rounds. Its interval comes from rounds drawn anew, with replacement (bootstrap,
percentiles). A change is sure if the whole interval lies on one side of the tolerated range. A result of one round has no interval,
and no change of it is sure.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

Figures = Mapping[str, float]
"""Figures of one round by name. The name tells the better direction: `records_per_s`, `p99_ms`."""

_DRAWS = 10_000
_CONFIDENCE = 0.95
_LOWER = re.compile(
    r"cpu|latency|(^|[._])(p\d+(_\d+)?|failed|refused|unanswered|late|lost|slowest|wasted)([._]|$)"
    r"|_(ns|us|ms|s|mb|bytes)$|predict\.floor_ratio$"
)
_HIGHER = re.compile(r"_per_s$|ratio$|(^|[._])of_\w+$|goodput")


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Figure beside the same figure of an earlier result."""

    figure: str
    before: Annotated[float, Meta(description="Median over the rounds.")]
    now: Annotated[float, Meta(description="Median over the rounds.")]
    ratio: Annotated[float | None, Meta(description="now / before. null: infinite.")]
    low: Annotated[float | None, Meta(description="Lower end of the 95 % interval of the ratio. null: infinite.")]
    high: Annotated[float | None, Meta(description="Upper end of the 95 % interval of the ratio. null: infinite.")]
    verdict: Annotated[
        str, Meta(description="`better`, `worse`, `same`, `unsure`, or empty for a figure that is neither.")
    ]


def compared(before: Sequence[Figures], now: Sequence[Figures], tolerance: float) -> list[Compared]:
    """Return the figures that all rounds of both results have, in the order of the earlier result.

    Args:
        before: rounds of the earlier result.
        now: rounds of the later result.
        tolerance: share. A smaller change is no change.
    """
    if not before or not now:
        return []
    found: list[Compared] = []
    for name in before[0]:
        if all(name in figures for figures in (*before, *now)):
            a, b = ([each[name] for each in rounds] for rounds in (before, now))
            low, high = interval(a, b)
            earlier, later = np.median(a), np.median(b)
            found.append(
                Compared(
                    figure=name,
                    before=float(earlier),
                    now=float(later),
                    ratio=_finite(float(_ratio(later, earlier))),
                    low=_finite(low),
                    high=_finite(high),
                    verdict=_verdict(name, low, high, tolerance),
                )
            )
    return found


def direction(name: str) -> int:
    """Return 1 if more is better by the name of a figure, -1 if less is better, and 0 if the name does not tell."""
    if name.endswith("_per_s"):
        return 1
    if _LOWER.search(name):
        return -1
    return 1 if _HIGHER.search(name) else 0


def interval(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of the medians, b / a. It has no end if there is only one round of either."""
    if min(len(a), len(b)) < 2:
        return 0.0, np.inf
    random = np.random.default_rng(0)
    ratios = _ratio(_drawn(random, b), _drawn(random, a))
    low, high = np.quantile(ratios, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2], method="inverted_cdf")
    return float(low), float(high)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


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
    """Return b / a. Two zeros are the same."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.equal(a, b), 1.0, np.divide(b, a))
