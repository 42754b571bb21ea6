"""When to try again what Redis has not taken: without any input or output, for threads and asyncio alike."""

import ssl
from collections.abc import Iterator

import redis

from cluster_serving.client.errors import ConnectionLost, QueueFull
from cluster_serving.client.protocol.resp import wants_password

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5


class Attempts:
    """One record's, or some records', attempts to get into the queue.

    Args:
        give_up_s: when the last one begins, on the clock that `pause_s` is told.
    """

    def __init__(self, give_up_s: float) -> None:
        self.give_up_s = give_up_s
        self._next_pause_s = _FIRST_PAUSE_S

    def progress(self) -> None:
        """Redis has taken some of them: room comes, and the next pause is a short one."""
        self._next_pause_s = _FIRST_PAUSE_S

    def pause_s(self, error: QueueFull | ConnectionLost, now_s: float) -> float:
        """How long to wait before the next attempt.

        Raises:
            QueueFull, ConnectionLost: the error itself, when another attempt is too late, useless, or might enqueue twice.
        """
        pause_s = self._next_pause_s
        if now_s + pause_s > self.give_up_s or not may_pass(error):
            raise error
        self._next_pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s


def may_pass(error: QueueFull | ConnectionLost) -> bool:
    """Whether Redis has certainly not taken what was sent, and may take it later: not so for a wrong password or certificate."""
    if isinstance(error, QueueFull):
        return True
    return error.unsent and not any(_is_final(cause) for cause in _causes(error))


def _is_final(error: BaseException) -> bool:
    wrong = (redis.AuthenticationError, ssl.SSLCertVerificationError)
    return isinstance(error, wrong) or wants_password(error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__ or error.__context__
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
