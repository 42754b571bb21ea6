"""How far a long piece of work is, told now and then; and the place where it notices that nobody wants it any more."""

import threading
import time
from collections.abc import Callable

EVERY_S = 10.0
_UNITS = ("B", "kB", "MB", "GB", "TB")


class GivenUp(Exception):
    """The work is not wanted any more."""


class Progress:
    """Of one fetch.

    Args:
        say: told a line each `every_s`.
        given_up: set by who does not want it any more.
        every_s: seconds between two lines.
    """

    def __init__(self, say: Callable[[str], None], given_up: threading.Event, every_s: float = EVERY_S) -> None:
        self.say = say
        self._given_up = given_up
        self._every_s = every_s
        self._due_s = time.monotonic() + every_s

    def check(self) -> None:
        """Go on, if anybody still wants it.

        Raises:
            GivenUp: nobody does.
        """
        if self._given_up.is_set():
            raise GivenUp

    def advance(self, done_bytes: int, total_bytes: int, doing: str) -> None:
        """Some of it is done.

        Raises:
            GivenUp: the rest is not wanted.
        """
        self.check()
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self._every_s
            self.say(f"{doing}: {readable(done_bytes)} of {readable(total_bytes)}")

    def pause(self, seconds: float) -> None:
        """Wait a little.

        Raises:
            GivenUp: what comes then is not wanted.
        """
        self._given_up.wait(seconds)
        self.check()


def readable(size: float) -> str:
    """Bytes for people: `1.4 GB`; powers of 1000."""
    power = 0
    while size >= 1000 and power < len(_UNITS) - 1:
        size /= 1000
        power += 1
    return f"{size:.3g} {_UNITS[power]}" if size < 999.5 else f"{size:.0f} {_UNITS[power]}"
