"""Token bucket that limits requests per second, as pure logic: the time is an argument.

The bucket fills by `tokens_per_second`, and holds the tokens of one second.
"""

_BURST_S = 1.0
_ROUNDING_S = 1e-6


class TokenBucket:
    """Bucket with one token a request. The bucket is full at first, and holds at least one token.

    Args:
        tokens_per_second: tokens that the bucket gains per second.
        timeout_s: longest wait of a request for its token, in seconds.

    Attributes:
        interval_s: seconds from one token to the next.
    """

    def __init__(self, tokens_per_second: float, timeout_s: float) -> None:
        self.interval_s = 1 / tokens_per_second
        self._timeout_s = timeout_s
        # Time in which all tokens of a full bucket but one arrived: the first token was due so long ago.
        self._head_start_s = max(0.0, _BURST_S - self.interval_s)
        self._due_s = float("-inf")

    def wait_s(self, now_s: float) -> float | None:
        """Take a token. Return the seconds until the token is due, or None, without a token, if the wait exceeds the timeout.

        Args:
            now_s: time of a monotonic clock, in seconds.
        """
        due_s = max(self._due_s, now_s - self._head_start_s)
        wait_s = due_s - now_s if due_s - now_s > _ROUNDING_S else 0.0
        if wait_s > self._timeout_s:
            return None
        self._due_s = due_s + self.interval_s
        return wait_s
