"""Process slot of a lane: a child that ends or hangs is killed and replaced by a successor, after a backoff."""

import signal
import time
from collections.abc import Callable
from typing import NamedTuple

import structlog

from cluster_serving.client.servers.process.backoff import Backoff
from cluster_serving.node.supervisor import stacks
from cluster_serving.node.supervisor.child import Child

log = structlog.get_logger(__name__)

_STEADY_S = 10.0  # a child that has lived so long is no longer in a restart loop


class KillReason(NamedTuple):
    """Reason for which the supervisor killed a child, and the stacks of the child at that moment."""

    reason: str
    stacks: str


class Seat:
    """State of one process slot: its child, whether a successor is wanted, and when to start the successor.

    `wanted`: a successor follows a child that ends. `recycling`: the child leaves, or has left, because of its memory, and the
    successor is not ready yet. `verdict`: reason for which the present child has been killed.
    """

    def __init__(self, name: str, start: Callable[[], Child]) -> None:
        self.name = name
        self.child: Child | None = None
        self.wanted = False
        self.recycling = False
        self.verdict: KillReason | None = None
        self.leaving_since_s: float | None = None
        """Time at which the present child was told to leave."""
        self.due_s = 0.0
        """Time at which the next child is to be started."""
        self._start = start
        self._backoff = Backoff()

    @property
    def ready(self) -> Child | None:
        """Child that is ready, or None."""
        return self.child if self.child is not None and self.child.ready is not None else None

    @property
    def booting(self) -> Child | None:
        """Child that is not ready yet, or None."""
        return self.child if self.child is not None and self.child.ready is None else None

    @property
    def vacant(self) -> bool:
        """True without a child and without a wanted successor: never started, or dismissed."""
        return self.child is None and not self.wanted

    @property
    def is_due(self) -> bool:
        """True when a successor is to be started now."""
        return self.wanted and self.child is None and time.monotonic() >= self.due_s

    def start(self) -> None:
        """Start a child.

        Raises:
            OSError: the child cannot be started.
        """
        self.wanted = True
        self.leaving_since_s = None
        try:
            self.child = self._start()
        except OSError:
            self.wait()
            raise

    def wait(self) -> None:
        """Schedule the next child with a growing delay (backoff). The delay starts over after a child that lived long."""
        if self.child is not None and time.monotonic() - self.child.started_s > _STEADY_S:
            self._backoff.reset()
        self.due_s = time.monotonic() + self._backoff.next_s()

    def recycle(self) -> None:
        """Let the child finish its batches and end, and start a successor at once."""
        self.recycling = True
        self._tell(signal.SIGTERM)

    def dismiss(self, number: int = signal.SIGTERM) -> None:
        """Let the child end without a successor."""
        self.wanted = False
        self._tell(number)

    def condemn(self, reason: str) -> None:
        """Kill a child that hangs, and keep its stacks in `verdict`."""
        if self.child is None or self.verdict is not None:
            return
        self.verdict = KillReason(reason, stacks.dump(self.child.pid))
        log.warning("hangs, and is killed", child=self.name, pid=self.child.pid, why=reason, stacks=self.verdict.stacks)
        self.child.signal(signal.SIGKILL)

    def _tell(self, number: int) -> None:
        self.leaving_since_s = time.monotonic()
        if self.child is not None:
            self.child.signal(number)
