"""Replacement of workers that use more memory than `maxWorkerMemory`, one at a time and without loss."""

import time
from collections.abc import Sequence

import psutil
import structlog

from cluster_serving.node.ring.ring import Ring
from cluster_serving.node.supervisor.child import Child
from cluster_serving.node.supervisor.seat import Seat

log = structlog.get_logger(__name__)

# A worker serves at least so many times its start time, however much memory it uses. Otherwise a lane would only load models.
_WORTH_STARTING = 3.0
_MB = 1e6


class MemoryLimit:
    """Memory limit of a lane's workers. A `limit_bytes` of 0 means no limit."""

    def __init__(self, ring: Ring, workers: Sequence[Seat], limit_bytes: int) -> None:
        self._ring = ring
        self._workers = workers
        self._limit = limit_bytes

    def welcome(self, seat: Seat) -> None:
        """Check a worker that has become ready. A worker that begins above the limit shows that no worker can keep the limit."""
        seat.recycling = False
        if not self._limit or seat.child is None:
            return
        used = own_bytes(seat.child)
        if used > self._limit:
            log.error(
                "maxWorkerMemory is not kept from now on: a worker that has just loaded the model takes more; set it higher",
                child=seat.name,
                limit_mb=_mb(self._limit),
                memory_mb=_mb(used),
            )
            self._limit = 0

    def look(self) -> None:
        """Take the first worker above the limit out of service. The worker finishes its batches and ends."""
        if not self._limit or any(seat.recycling for seat in self._workers):
            return
        for index, seat in enumerate(self._workers):
            child = seat.ready
            if child is None or not seat.wanted:
                continue
            young = time.monotonic() - child.ready_s < _WORTH_STARTING * (child.ready_s - child.started_s)
            if young or (used := own_bytes(child)) <= self._limit:
                continue
            log.warning(
                "takes more than maxWorkerMemory, and is replaced",
                child=seat.name,
                pid=child.pid,
                limit_mb=_mb(self._limit),
                memory_mb=_mb(used),
            )
            self._ring.set_serving(index, False)
            seat.recycle()
            return


def own_bytes(child: Child) -> int:
    """Return the bytes of memory that the end of a process would free (USS), or 0 if the process has ended or is not readable."""
    try:
        return int(psutil.Process(child.pid).memory_full_info().uss)
    except (psutil.Error, OSError):
        return 0


def _mb(size: int) -> float:
    return round(size / _MB, 1)
