"""Which children of a lane hang: they have something to do, and have shown no sign of life for too long."""

import time
from collections.abc import Callable

from cluster_serving.node.ring.metrics import FIRST_WORKER, READER, WRITER
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.supervisor.child import Child

_ABSENT_S = 2.0  # its own turns take half a second, and rarely more
_SLOWEST_BOOT = 10.0  # times the slowest one so far: the model may have to come from the disk again


class HangDetector:
    """Looks at the ring of a lane.

    Time in which the supervisor itself did not look does not count: whoever stopped it has stopped its children too.

    Args:
        ring: of the lane.
        run_timeout_s: what one run of the model may take.
        patience_s: how long reader and writer may be silent.
        clock: seconds, monotonic.
    """

    def __init__(
        self, ring: Ring, run_timeout_s: float, patience_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.run_timeout_s = run_timeout_s
        self.patience_s = patience_s
        self._ring = ring
        self._clock = clock
        self._since_s = self._looked_s = self._published_s = clock()
        self._slowest_boot_s = 0.0

    def look(self) -> None:
        """Once in each turn of the supervisor, before asking."""
        now_s = self._clock()
        if now_s - self._looked_s > _ABSENT_S:
            self._since_s = now_s
        self._looked_s = now_s
        if not self._ring.every(State.DONE, State.PUBLISHING):
            self._published_s = now_s

    def booted(self, child: Child) -> None:
        """A child has become ready: those that follow have to do so in a time like this one's."""
        self._slowest_boot_s = max(self._slowest_boot_s, child.ready_s - child.started_s)

    @property
    def boot_patience_s(self) -> float:
        """How long a child may take to become ready, when another one of its lane has."""
        return self.run_timeout_s + self.patience_s + _SLOWEST_BOOT * self._slowest_boot_s

    def boot_hangs(self, process: int, child: Child) -> bool:
        """Whether a child does not become ready; a reader that waits for Redis shows signs of life."""
        return self._silent_s(process, child, child.started_s) > self.boot_patience_s

    def worker_hangs(self, worker: int, child: Child, told_s: float | None) -> bool:
        """Whether a ready worker hangs in a run; or in its end, where it was told to leave."""
        slots = self._ring.owned(worker, State.RUNNING) or self._ring.owned(worker, State.READY)
        if slots:
            begun_s = self._ring.slots[slots[0]].handed_s
        elif told_s is not None:
            begun_s = told_s
        else:
            return False
        return self._silent_s(FIRST_WORKER + worker, child, begun_s) > self.run_timeout_s

    def reader_hangs(self, child: Child) -> bool:
        """Whether a ready reader hangs."""
        return self._silent_s(READER, child, 0.0) > self.patience_s

    def writer_hangs(self, child: Child, told_s: float | None) -> bool:
        """Whether a ready writer hangs with something to publish; or in its end, where it was told to leave."""
        begun_s = self._published_s if told_s is None else told_s
        return self._silent_s(WRITER, child, begun_s) > self.patience_s

    def _silent_s(self, process: int, child: Child, begun_s: float) -> float:
        """Seconds without a sign of life since it has had something to do."""
        begun_s = max(begun_s, child.ready_s, self._since_s)
        return min(self._ring.silent_s(process), self._clock() - begun_s)
