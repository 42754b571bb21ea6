"""Load of a node, every few seconds: a line of the log while there is load, and a point of each scalar for TensorBoard."""

import time

import structlog

from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.node.supervisor.tensorboard import Scalars

log = structlog.get_logger(__name__)


class LoadLine:
    """Periodic line with rate, latency, backlog and batch fill. A node without work since the last line is silent.

    Args:
        interval_s: seconds between two lines. 0: no line.
        scalars: scalars for TensorBoard, which get a point at the same times, without load too.
    """

    def __init__(self, interval_s: float, scalars: Scalars) -> None:
        self.interval_s = interval_s
        self.scalars = scalars
        self._due_s = time.monotonic() + interval_s
        self._handled = 0

    def tell(self, beat: Heartbeat, backlog: int) -> None:
        """Tell the load in a heartbeat, if the interval is over. The line is logged if records have been answered or wait.

        Args:
            beat: present heartbeat of the node.
            backlog: number of records in the queue of the job, with the records that nodes work on.
        """
        if not self.interval_s or time.monotonic() < self._due_s or (load := beat.load) is None:
            return
        self._due_s = time.monotonic() + self.interval_s
        self.scalars.add(beat, load)
        handled = beat.figures["answered"] + beat.figures["failed"]
        if handled == self._handled and not backlog:
            return
        self._handled = handled
        log.info(
            "load",
            records_s=round(load.records_s, 1),
            errors_s=round(load.errors_s, 1),
            p50_ms=round(load.p50_s * 1000, 1),
            p99_ms=round(load.p99_s * 1000, 1),
            backlog=backlog,
            fill=round(load.rows / beat.batch_size, 2),
        )
