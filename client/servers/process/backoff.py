"""Delays between attempts: exponential backoff."""

import random


class Backoff:
    """Delays that double from `first_s` to `most_s`.

    Each delay is shortened at random by up to a half, so that nodes do not return together.
    """

    def __init__(self, first_s: float = 0.1, most_s: float = 2.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self.reset()

    @property
    def failing(self) -> bool:
        """True if no attempt has succeeded since the last delay."""
        return self._delay_s != self._first_s

    def reset(self) -> None:
        """Begin anew with the first delay, after a success."""
        self._delay_s = self._first_s

    def next_s(self) -> float:
        """Return the next delay."""
        delay_s = self._delay_s
        self._delay_s = min(2 * delay_s, self._most_s)
        return delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
