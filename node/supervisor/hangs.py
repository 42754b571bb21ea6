"""Detection of hung children of a lane: children with work to do and without a sign of life for too long.

    child           has work since                                                       longest silence
    ──────────────  ───────────────────────────────────────────────────────────────────  ───────────────────
    not ready yet   its start                                                            `boot_patience_s`
    worker          a batch was handed to the worker, or the worker was told to leave    `run_timeout_s`
    reader          its ready message                                                    `patience_s`
    writer          no result waited, or the writer was told to leave                    `patience_s`

Time in which the supervisor did not look does not count, because a pause of the supervisor has paused its children too. Nor does
time in which reader or writer connect to Redis, up to two minutes: a successor would have to connect too.
"""

import time
from collections.abc import Callable

from cluster_serving.node.ring.metrics import FIRST_WORKER, READER, WRITER
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.supervisor.child import Child

_ABSENT_S = 2.0  # without a look: the supervisor was paused, because its turns take half a second
_SLOWEST_BOOT = 10.0  # times the slowest boot so far, because the model may have to come from the disk again


class HangDetector:
    """Detector of hung children, by the ring of a lane.

    Args:
        ring: ring of the lane.
        run_timeout_s: longest time of one run of the model.
        patience_s: longest silence of reader and writer.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self, ring: Ring, run_timeout_s: float, patience_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.run_timeout_s = run_timeout_s
        self.patience_s = patience_s
        self._ring = ring
        self._clock = clock
        self._watched_since_s = self._looked_s = self._published_s = clock()
        self._slowest_boot_s = 0.0

    def look(self) -> None:
        """Update the detector. Called once in each turn of the supervisor, before the questions below."""
        now_s = self._clock()
        if now_s - self._looked_s > _ABSENT_S:
            self._watched_since_s = now_s
        self._looked_s = now_s
        if not self._ring.every(State.DONE, State.PUBLISHING):
            self._published_s = now_s

    def booted(self, child: Child) -> None:
        """Note the boot time of a child that has become ready. The boot time limits the boot of later children."""
        self._slowest_boot_s = max(self._slowest_boot_s, child.ready_s - child.started_s)

    @property
    def boot_patience_s(self) -> float:
        """Seconds that a child may take to become ready, after a first child of the lane has become ready."""
        return self.run_timeout_s + self.patience_s + _SLOWEST_BOOT * self._slowest_boot_s

    def boot_hangs(self, process: int, child: Child) -> bool:
        """Return whether a child hangs before it is ready. A reader that waits for Redis shows signs of life."""
        return self._silent_s(process, child, child.started_s) > self.boot_patience_s

    def worker_hangs(self, worker: int, child: Child, leaving_since_s: float | None) -> bool:
        """Return whether a ready worker hangs in a run, or in its end after being told to leave."""
        slots = self._ring.owned(worker, State.RUNNING) or self._ring.owned(worker, State.READY)
        if slots:
            begun_s = self._ring.slots[slots[0]].handed_s
        elif leaving_since_s is not None:
            begun_s = leaving_since_s
        else:
            return False
        return self._silent_s(FIRST_WORKER + worker, child, begun_s) > self.run_timeout_s

    def reader_hangs(self, child: Child) -> bool:
        """Return whether a ready reader hangs."""
        return self._silent_s(READER, child, 0.0) > self.patience_s

    def writer_hangs(self, child: Child, leaving_since_s: float | None) -> bool:
        """Return whether a ready writer hangs with results to publish, or in its end after being told to leave."""
        begun_s = self._published_s if leaving_since_s is None else leaving_since_s
        return self._silent_s(WRITER, child, begun_s) > self.patience_s

    def _silent_s(self, process: int, child: Child, begun_s: float) -> float:
        """Return the seconds without a sign of life since the process has had work."""
        begun_s = max(begun_s, child.ready_s, self._watched_since_s)
        return min(self._ring.silent_s(process), self._clock() - begun_s)
