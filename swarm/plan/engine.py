"""Discrete-event simulation of processes on machines: a clock with events, and cores that running processes share equally.

    Process.do ──► one piece of work at a time ──► Machine.run ──► Clock.at ──► the piece is done

Sharing cores equally, as the kernel does, is the one thing that general simulators lack.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Then = Callable[[], None]
Begin = Callable[[], tuple[float, Then]]
"""Begin of a piece of work. The result is the CPU time in seconds, and the call that follows the work."""


class Clock:
    """Simulated time, and the events to come. Events of one time happen in the order in which they were set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Then]] = []
        self._numbers = count()

    def after(self, delay_s: float, then: Then) -> None:
        """Set an event."""
        heappush(self._events, (self.now_s + delay_s, next(self._numbers), then))

    def stop(self) -> None:
        """Let no more events happen."""
        self._events.clear()

    def run(self) -> None:
        """Let events happen until there are no more events."""
        events = self._events
        while events:
            self.now_s, _, then = heappop(events)
            then()


class Machine:
    """Cores. Threads in excess of the cores get equal shares of them.

    Each thread has done `_done_s` of work since the begin, so the work of a process ends at a known value of `_done_s`, however
    the shares change meanwhile.
    """

    def __init__(self, clock: Clock, cores: float) -> None:
        self._clock = clock
        self._cores = cores
        self._ends: list[tuple[float, int, int, Then]] = []  # value of `_done_s`, number, threads, call
        self._threads = 0
        self._done_s = self._since_s = 0.0
        self._numbers = count()
        self._event = 0  # number of the newest event. An older event is out of date.

    def run(self, work_s: float, then: Then, threads: int = 1) -> None:
        """Do some work in each of the threads, and then make the call."""
        self._advance()
        self._threads += threads
        heappush(self._ends, (self._done_s + work_s, next(self._numbers), threads, then))
        self._await()

    def _advance(self) -> None:
        now_s = self._clock.now_s
        self._done_s += (now_s - self._since_s) * self._share
        self._since_s = now_s

    @property
    def _share(self) -> float:
        return min(1.0, self._cores / self._threads) if self._threads else 0.0

    def _await(self) -> None:
        self._event += 1
        if self._ends:
            event, left_s = self._event, max(0.0, self._ends[0][0] - self._done_s)
            self._clock.after(left_s / self._share, lambda: self._end(event))

    def _end(self, event: int) -> None:
        if event != self._event:
            return
        self._advance()
        end_s, _, threads, then = heappop(self._ends)
        self._done_s = max(self._done_s, end_s)  # rounding
        self._threads -= threads
        self._await()
        then()


class Process:
    """Process that does pieces of work one after the other.

    Args:
        machine: machine that the process runs on.
        threads: threads that share each piece of work.
        wake_s: CPU time of a piece that finds the process without work, in addition.
    """

    def __init__(self, machine: Machine, wake_s: float = 0.0, threads: int = 1) -> None:
        self._machine = machine
        self._threads = threads
        self._wake_s = wake_s
        self._waiting: deque[Begin] = deque()
        self._is_busy = False
        self.work_s = 0.0
        """CPU time of all work so far."""

    def do(self, begin: Begin) -> None:
        """Do a piece of work, after the pieces that wait."""
        self._waiting.append(begin)
        if not self._is_busy:
            self._is_busy = True
            self._next(self._wake_s)

    def _next(self, wake_s: float = 0.0) -> None:
        if not self._waiting:
            self._is_busy = False
            return
        work_s, then = self._waiting.popleft()()
        work_s += wake_s
        self.work_s += work_s

        def done() -> None:
            then()
            self._next()

        if work_s:
            self._machine.run(work_s / self._threads, done, self._threads)
        else:
            done()
