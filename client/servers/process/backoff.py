"""How long to wait before trying again."""

import random


class Backoff:
    """Doubling from `first_s` to `most_s`, each shortened by up to a half at random so that nodes do not return together."""

    def __init__(self, first_s: float = 0.1, most_s: float = 2.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self.reset()

    @property
    def failing(self) -> bool:
        """Whether it has not worked since the last delay."""
        return self._delay_s != self._first_s

    def reset(self) -> None:
        """It worked: begin anew."""
        self._delay_s = self._first_s

    def next_s(self) -> float:
        """The next delay."""
        delay_s = self._delay_s
        self._delay_s = min(2 * delay_s, self._most_s)
        return delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
