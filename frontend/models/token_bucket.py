"""Limits requests a second: a bucket that fills by `tokens_per_second` and holds those of one second; pure, time passed in."""

_BURST_S = 1.0
_ROUNDING_S = 1e-6


class TokenBucket:
    """One token a request; the bucket is full at first, and holds at least one.

    Args:
        tokens_per_second: how fast it fills.
        timeout_s: how long a request may wait for its token.

    Attributes:
        interval_s: from one token to the next.
    """

    def __init__(self, tokens_per_second: float, timeout_s: float) -> None:
        self.interval_s = 1 / tokens_per_second
        self._timeout_s = timeout_s
        # As much as the tokens of a full bucket but one took to fill it: the first of them was due so long ago.
        self._head_start_s = max(0.0, _BURST_S - self.interval_s)
        self._due_s = float("-inf")

    def wait_s(self, now_s: float) -> float | None:
        """Take a token: seconds until it is there, 0 for now; None, and none is taken, if that is longer than the timeout.

        Args:
            now_s: of a clock that never goes back.
        """
        due_s = max(self._due_s, now_s - self._head_start_s)
        wait_s = due_s - now_s if due_s - now_s > _ROUNDING_S else 0.0
        if wait_s > self._timeout_s:
            return None
        self._due_s = due_s + self.interval_s
        return wait_s
