"""Processes of a frontend with the same settings. A reload starts a new generation on the same sockets, and the old one drains."""

import math
import os
import signal
import time
from collections.abc import Mapping
from functools import partial

import structlog

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.server.child import Child
from cluster_serving.frontend.server.hangs import HangDetector
from cluster_serving.frontend.server.listeners import Address, Listener
from cluster_serving.frontend.server.seat import Seat

log = structlog.get_logger(__name__)

_GRACE_S = 5.0
"""Seconds that a process may take to end, beyond `drainTimeout`."""
_PATIENCE_S = 10.0
"""Longest silence of a ready process. Its event loop flushes the timers four times a second, and so gives a sign of life."""
_BOOT_PATIENCE_S = 120.0


class Generation:
    """Processes with one configuration.

    Args:
        config: settings of the processes.
        listeners: HTTP, and HTTPS if enabled, with sockets for each process.

    Attributes:
        served: True once all processes have been ready.
        leaving: True once the processes have been told to end.
        kill_s: time at which the processes that still run are killed.
    """

    def __init__(self, config: FrontendConfig, listeners: Mapping[Address, Listener]) -> None:
        self.config = config
        self.listeners = listeners
        self.served = False
        self.leaving = False
        self.kill_s = math.inf
        self._timers = Timers(config.workers)
        self._seats = [
            Seat(number, partial(Child, number, list(listeners.values()), config, self._timers.fd))
            for number in range(config.workers)
        ]

    @property
    def children(self) -> list[Child]:
        """Processes that run."""
        return [seat.child for seat in self._seats if seat.child is not None]

    @property
    def ready(self) -> bool:
        """True while all processes are ready."""
        return all(seat.child and seat.child.ready is not None for seat in self._seats)

    @property
    def due_s(self) -> float:
        """Time of the next act: to start a process, or to kill the processes that have been told to end."""
        if self.leaving:
            return self.kill_s
        return min((seat.due_s for seat in self._seats if seat.child is None), default=math.inf)

    def act(self) -> None:
        """Start the processes that are due, or kill the processes that have had their time to end.

        Raises:
            OSError: a process cannot be started, before all processes have been ready.
        """
        if self.leaving:
            if time.monotonic() >= self.kill_s:
                self.kill_s = math.inf
                self._signal(signal.SIGKILL)
            return
        for seat in self._seats:
            if seat.is_due:
                try:
                    seat.start()
                except OSError as error:  # no memory, or too many processes
                    if not self.served:
                        raise
                    log.error("a process could not be started", number=seat.number, reason=error.strerror)

    def leave(self, number: int) -> None:
        """Send a signal to all processes, and kill the processes that have not ended in time."""
        self.leaving = True
        self.kill_s = time.monotonic() + self.config.drain_timeout_s + _GRACE_S
        self._signal(number)

    def kill_the_hung(self, detector: HangDetector) -> None:
        """Kill the processes that hang, and log their stacks."""
        for seat in self._seats:
            child = seat.child
            if child is None or self.leaving or child.hung:
                continue
            if child.ready is None:
                silent_s, patience_s = detector.silent_s(child.started_s), _BOOT_PATIENCE_S
            else:
                seen_s = max(child.ready_s, self._timers.seen_s(seat.number))
                silent_s, patience_s = detector.silent_s(seen_s), _PATIENCE_S
            if silent_s > patience_s:
                why = f"no sign of life for {silent_s:.0f} s"
                stacks = child.kill_hung() or "none, for a signal has stopped the process"
                log.error("hangs, and is killed", number=seat.number, pid=child.pid, why=why, stacks=stacks)

    def bury_the_dead(self) -> tuple[str, int] | None:
        """Reap the processes that have ended, and schedule their successors.

        Returns:
            Reason and exit code of a process that ended before all processes had been ready. None: there is no such process.
        """
        for seat in self._seats:
            child = seat.child
            if child is None or (reason := child.reap()) is None:
                continue
            child.hear()
            child.close()
            delay_s = seat.wait()
            if self.leaving:
                if child.ready is not None and reason != "exit code 0":
                    log.warning(
                        "a process ended before it had answered all requests", number=seat.number, reason=reason
                    )
            elif self.served:
                why = "it hung" if child.hung else child.failure[0] if child.failure else reason
                log.error("a process died", number=seat.number, reason=why, again_in_s=round(delay_s, 2))
            else:
                return child.failure or (f"a process could not start: {reason}", ExitCode.FAILED)
        return None

    def close(self) -> None:
        """Let go of the memory of the timers, after all processes have ended."""
        os.close(self._timers.fd)

    def _signal(self, number: int) -> None:
        for child in self.children:
            child.signal(number)
