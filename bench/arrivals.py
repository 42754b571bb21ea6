"""Schedules of an open loop: times at which requests arrive, whatever the server does. Pure; the same seed gives the same times."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
"""Seconds from the start, rising."""

BURST = 16


def fixed(rate_per_s: float, seconds: float, seed: int = 0) -> Times:
    """One each 1 / rate seconds; `seed` changes nothing."""
    del seed
    return np.arange(round(rate_per_s * seconds)) / rate_per_s


def poisson(rate_per_s: float, seconds: float, seed: int = 0) -> Times:
    """Of callers that know nothing of each other; on average `rate_per_s * seconds` of them."""
    random = np.random.default_rng(seed)
    return np.sort(random.uniform(0, seconds, random.poisson(rate_per_s * seconds)))


def bursts(rate_per_s: float, seconds: float, seed: int = 0) -> Times:
    """`BURST` at the same moment, the bursts coming as by `poisson`; over all, the same rate."""
    return np.repeat(poisson(rate_per_s / BURST, seconds, seed), BURST)


ARRIVALS: dict[str, Callable[[float, float, int], Times]] = {"fixed": fixed, "poisson": poisson, "bursts": bursts}
