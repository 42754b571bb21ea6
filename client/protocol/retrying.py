"""Retries of records that Redis has not taken. No I/O, for threads and asyncio alike."""

import ssl

import redis

from cluster_serving.client.errors import ConnectionLost, QueueFull
from cluster_serving.client.protocol.resp import wants_password

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5


class Attempts:
    """Attempts to get one or more records into the queue, with exponential backoff.

    Args:
        give_up_s: latest start of an attempt, on the clock of `now_s` in `pause_s`.
    """

    def __init__(self, give_up_s: float) -> None:
        self.give_up_s = give_up_s
        self._next_pause_s = _FIRST_PAUSE_S

    def progress(self) -> None:
        """Note that Redis took records: room becomes free, so the next pause is short."""
        self._next_pause_s = _FIRST_PAUSE_S

    def pause_s(self, error: QueueFull | ConnectionLost, now_s: float) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            QueueFull, ConnectionLost: the error itself, when another attempt is too late, useless, or might enqueue twice.
        """
        pause_s = self._next_pause_s
        if now_s + pause_s > self.give_up_s or not may_pass(error):
            raise error
        self._next_pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s


def may_pass(error: QueueFull | ConnectionLost) -> bool:
    """Return whether Redis certainly took no record, and may take the records later.

    False for a wrong password or certificate.
    """
    if isinstance(error, QueueFull):
        return True
    if not error.unsent:
        return False
    cause = error.__cause__ or error.__context__
    while cause is not None:
        if isinstance(cause, (redis.AuthenticationError, ssl.SSLCertVerificationError)) or wants_password(cause):
            return False
        cause = cause.__cause__ or cause.__context__
    return True
