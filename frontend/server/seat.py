"""Place of one process of a frontend: its child, or the time at which a child is to be started."""

import time
from collections.abc import Callable

from cluster_serving.client.servers.process.backoff import Backoff
from cluster_serving.frontend.server.child import Child

_STEADY_S = 10.0  # a child that has lived so long is no longer in a restart loop
_LONGEST_PAUSE_S = 5.0


class Seat:
    """Process slot `number` of a frontend. A child that ends is replaced by a successor, after a backoff."""

    def __init__(self, number: int, start: Callable[[], Child]) -> None:
        self.number = number
        self.child: Child | None = None
        self.due_s = 0.0
        """Time at which the next child is to be started."""
        self._start = start
        self._backoff = Backoff(most_s=_LONGEST_PAUSE_S)

    @property
    def is_due(self) -> bool:
        """True when a child is to be started now."""
        return self.child is None and time.monotonic() >= self.due_s

    def start(self) -> None:
        """Start a child.

        Raises:
            OSError: the child cannot be started, and is due again after the longest pause.
        """
        try:
            self.child = self._start()
        except OSError:
            self.due_s = time.monotonic() + _LONGEST_PAUSE_S
            raise

    def wait(self) -> float:
        """Schedule the successor of a child that has ended, and return the delay in seconds.

        The delay grows from child to child, and starts over after a child that served for long.
        """
        child, self.child = self.child, None
        if child is not None and child.ready is not None and time.monotonic() - child.started_s > _STEADY_S:
            self._backoff.reset()
        delay_s = self._backoff.next_s()
        self.due_s = time.monotonic() + delay_s
        return delay_s
