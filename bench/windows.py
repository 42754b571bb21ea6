"""Windows of a measurement, and how long the calls took that were under way in them."""

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Window = tuple[float, float]
"""Seconds of the monotonic clock: from, to."""


def window_of(act: Callable[[], object]) -> Window:
    """Act, and return the window in which that happened."""
    begun_s = time.monotonic()
    act()
    return begun_s, time.monotonic()


def milliseconds(spans: NDArray[np.float64], windows: Sequence[Window]) -> NDArray[np.float64]:
    """Return how long the calls took that were under way in one of the windows; `spans` is [calls, 2], begin and end of each."""
    within = [spans[(spans[:, 1] > start) & (spans[:, 0] < end)] for start, end in windows]
    found = np.concatenate(within)
    return 1000 * (found[:, 1] - found[:, 0])
