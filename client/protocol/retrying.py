"""Retries of records that Redis has not taken. No I/O, for threads and asyncio alike."""

from cluster_serving.client.errors import ConnectionLost, QueueFull

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5
_LEAST_CONNECT_S = 2.0  # enough for a lost packet


def connect_s(left_s: float) -> float:
    """Return the seconds for connecting in an attempt of a call with `left_s` seconds of patience left."""
    return max(left_s, _LEAST_CONNECT_S)


class Attempts:
    """Attempts to get records into the queue, with exponential backoff while Redis takes none."""

    def __init__(self) -> None:
        self._next_pause_s = _FIRST_PAUSE_S

    def pause_s(self, error: QueueFull | ConnectionLost, now_s: float, give_up_s: float) -> float:
        """Return the seconds to wait before the next attempt. The next attempt begins at `give_up_s` or earlier.

        Raises:
            QueueFull, ConnectionLost: the error itself, when another attempt is too late, useless, or might enqueue twice.
        """
        pause_s = self._next_pause_s
        if now_s + pause_s > give_up_s or not may_pass(error):
            raise error
        self._next_pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s


def may_pass(error: QueueFull | ConnectionLost) -> bool:
    """Return whether Redis certainly took no record, and may take the records later.

    False for a wrong password or certificate.
    """
    return isinstance(error, QueueFull) or (error.unsent and not error.final)


def restated(error: ConnectionLost, kind: type[ConnectionLost]) -> ConnectionLost:
    """Return the error as another type."""
    return kind(str(error), final=error.final)
