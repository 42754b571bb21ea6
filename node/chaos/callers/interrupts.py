"""Programs that are interrupted, by Ctrl-C or an alarm."""

import math
import signal
from collections.abc import Callable
from random import Random

from cluster_serving.node.chaos.callers.caller import Caller

_SHORTEST_S, _LONGEST_S = 2e-5, 5e-2
_ROUNDS = 10


class Interrupted(KeyboardInterrupt):
    """Raised by the signal handler."""


class Interrupts(Caller):
    """A signal handler raises at random instants of every call."""

    def round(self) -> None:
        """Make calls that are interrupted, and some that are not."""
        for _ in range(_ROUNDS):
            with self.calls.counted():
                self.tally.stopped += interrupted(self.calls.random, self._call)
        with self.calls.counted():
            self._call()

    def _call(self) -> None:
        for _ in self.calls.any_loop():
            pass


def interrupted(random: Random, call: Callable[[], None]) -> bool:
    """Make a call, and interrupt it at a random instant. Return whether the call was interrupted."""
    calls = False

    def interrupt(*_: object) -> None:
        if calls:  # another thread may get the signal, and the handler runs here after the timer was stopped, or in the next call
            raise Interrupted

    signal.signal(signal.SIGALRM, interrupt)
    wait_s = math.exp(random.uniform(math.log(_SHORTEST_S), math.log(_LONGEST_S)))
    try:
        try:
            calls = True
            signal.setitimer(signal.ITIMER_REAL, wait_s)
            call()
        finally:
            calls = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted:
        return True
    return False
