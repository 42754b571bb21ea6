"""A place in a lane that a child fills; another one takes it when the child has ended."""

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
    """Why the supervisor has killed a child, and where it stood."""

    reason: str
    stacks: str


class Seat:
    """Who fills it, whether somebody is to, and since when nobody does.

    `wanted`: a child that ends is followed by another one. `recycling`: the one that is there leaves, or has left, because of
    its memory, and its successor is not ready yet. `verdict`: the one that is there has been killed.
    """

    def __init__(self, name: str, start: Callable[[], Child]) -> None:
        self.name = name
        self.child: Child | None = None
        self.wanted = False
        self.recycling = False
        self.verdict: KillReason | None = None
        self.leaving_since_s: float | None = None
        """When the child that is there was told to leave."""
        self.due_s = 0.0
        """When the next child is to be started."""
        self._start = start
        self._backoff = Backoff()

    @property
    def ready(self) -> Child | None:
        """The child, if it does its work."""
        return self.child if self.child is not None and self.child.ready is not None else None

    @property
    def booting(self) -> Child | None:
        """The child, if it is not ready yet."""
        return self.child if self.child is not None and self.child.ready is None else None

    @property
    def vacant(self) -> bool:
        """Whether nobody is there, and nobody is to come: nobody ever was, or the last one was dismissed."""
        return self.child is None and not self.wanted

    @property
    def is_due(self) -> bool:
        """Whether another child is to be started now."""
        return self.wanted and self.child is None and time.monotonic() >= self.due_s

    def start(self) -> None:
        """Start a child.

        Raises:
            OSError: it cannot be started.
        """
        self.wanted = True
        self.leaving_since_s = None
        try:
            self.child = self._start()
        except OSError:
            self.wait()
            raise

    def wait(self) -> None:
        """Let the next child wait for longer than the one before, unless that one lived long."""
        if self.child is not None and time.monotonic() - self.child.started_s > _STEADY_S:
            self._backoff.reset()
        self.due_s = time.monotonic() + self._backoff.next_s()

    def recycle(self) -> None:
        """Let the child finish what it has and end, and another one follow at once."""
        self.recycling = True
        self._tell(signal.SIGTERM)

    def dismiss(self, number: int = signal.SIGTERM) -> None:
        """Let the child end, and nobody follow."""
        self.wanted = False
        self._tell(number)

    def condemn(self, reason: str) -> None:
        """Kill a child that hangs, and keep where it stood for its burial."""
        if self.child is None or self.verdict is not None:
            return
        self.verdict = KillReason(reason, stacks.dump(self.child.pid))
        log.warning("hangs, and is killed", child=self.name, pid=self.child.pid, why=reason, stacks=self.verdict.stacks)
        self.child.signal(signal.SIGKILL)

    def _tell(self, number: int) -> None:
        self.leaving_since_s = time.monotonic()
        if self.child is not None:
            self.child.signal(number)
