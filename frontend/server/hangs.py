"""Detection of processes that hang: processes without a sign of life for too long."""

import time
from collections.abc import Callable

_ABSENT_S = 3.0  # without a look: the server was paused, because its turns take a second


class HangDetector:
    """Clock of silence. A pause of the server does not count, because the pause has paused its processes too.

    Args:
        clock: monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched_since_s = self._looked_s = clock()

    def look(self) -> None:
        """Update the detector. Called once in each turn of the server, before `silent_s`."""
        now_s = self._clock()
        if now_s - self._looked_s > _ABSENT_S:
            self._watched_since_s = now_s
        self._looked_s = now_s

    def silent_s(self, seen_s: float) -> float:
        """Return the seconds of silence of a process after a sign of life at `seen_s`."""
        return self._clock() - max(seen_s, self._watched_since_s)
