"""Rate at which records arrive, from a count that grows. Pure."""

import math
from collections import deque

FAST_S = 10.0
"""Seconds of looks before a rate is known."""
_SLOW_S = 60.0
_SIGMAS = 3.0  # a Poisson process exceeds its mean by more in one of 700 windows


class Arrivals:
    """Counts of the last minute."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def observe(self, now_s: float, count: int) -> bool:
        """Add the number of records that have ever arrived. Return False if the count has fallen: Redis has lost records."""
        is_sound = not self._counts or count >= self._counts[-1][1]
        if not is_sound:
            self._counts.clear()
        self._counts.append((now_s, count))
        while now_s - self._counts[0][0] > _SLOW_S:
            self._counts.popleft()
        return is_sound

    def forget(self) -> None:
        """Forget all counts, after a time without looks."""
        self._counts.clear()

    @property
    def seconds(self) -> float:
        """Seconds from the first count to the last."""
        return self._counts[-1][0] - self._counts[0][0] if self._counts else 0.0

    @property
    def rate(self) -> float | None:
        """Records a second. None: not yet observed for `FAST_S`.

        The rate of the last 10 s counts as soon as it exceeds the rate of the last minute by more than chance. Otherwise the rate
        of the minute counts, so that noise starts no node.
        """
        if self.seconds < FAST_S:
            return None
        now_s, count = self._counts[-1]
        slow = (count - self._counts[0][1]) / self.seconds
        from_s, earlier = next(each for each in reversed(self._counts) if now_s - each[0] >= FAST_S)
        expected = slow * (now_s - from_s)
        is_rising = count - earlier > expected + _SIGMAS * math.sqrt(max(1.0, expected))
        return (count - earlier) / (now_s - from_s) if is_rising else slow
