"""Progress of a fetch: messages now and then, and the check whether the fetch was given up."""

import threading
import time
from collections.abc import Callable

EVERY_S = 10.0
_UNITS = ("B", "kB", "MB", "GB", "TB")


class GivenUp(Exception):
    """The fetch was given up."""


class Progress:
    """Progress of a fetch.

    Args:
        say: called with a line each `every_s`.
        given_up: set by the caller to give up the fetch.
        every_s: seconds between two lines.
    """

    def __init__(self, say: Callable[[str], None], given_up: threading.Event, every_s: float = EVERY_S) -> None:
        self.say = say
        self._given_up = given_up
        self._every_s = every_s
        self._due_s = time.monotonic() + every_s

    def check(self) -> None:
        """Check that the fetch was not given up.

        Raises:
            GivenUp: the fetch was given up.
        """
        if self._given_up.is_set():
            raise GivenUp

    def advance(self, done_bytes: int, total_bytes: int, doing: str) -> None:
        """Report the progress, if a line is due.

        Raises:
            GivenUp: the fetch was given up.
        """
        self.check()
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self._every_s
            self.say(f"{doing}: {readable(done_bytes)} of {readable(total_bytes)}")

    def pause(self, seconds: float) -> None:
        """Wait for some seconds, or until the fetch is given up.

        Raises:
            GivenUp: the fetch was given up.
        """
        self._given_up.wait(seconds)
        self.check()


def readable(size: float) -> str:
    """Return a size for people, in powers of 1000, such as `1.4 GB`."""
    power = 0
    while size >= 1000 and power < len(_UNITS) - 1:
        size /= 1000
        power += 1
    return f"{size:.3g} {_UNITS[power]}" if size < 999.5 else f"{size:.0f} {_UNITS[power]}"
