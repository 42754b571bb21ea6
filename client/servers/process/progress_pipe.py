"""Pipe from a node or a frontend to the waiting command (`start`, `restart`, `serve`), with JSON lines.

{"event": "progress", "text": ...}              any number of times, the present step
{"event": "warning", "text": ...}               any number of times, to be read later too
{"event": "ready", "text": ..., "drain_s": S}   once, as the last line. With the seconds that a frontend may take to stop
{"event": "failed", "text": ..., "code": N}     once instead. Without a code, the exit code of the process counts
"""

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

_LOOK_S = 1.0
_LAST = {"ready", "failed"}


class Event(msgspec.Struct, omit_defaults=True):
    """Line of the pipe."""

    event: str
    text: str
    code: int = 0
    drain_s: float = 0.0


class Reporter:
    """Sender's end of the pipe, silent without a descriptor. Callable as `report(event, text, code)`."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self.was_ready = False
        if descriptor is not None:
            os.set_inheritable(descriptor, False)  # a child with the descriptor would hide the sender's death

    def __call__(self, event: str, text: str, code: int = 0) -> None:
        """Send an event."""
        self.send(Event(event, text.encode(errors="backslashreplace").decode(), code))

    def send(self, event: Event) -> None:
        """Send an event. `ready` and `failed` close the pipe, and later events are dropped."""
        self.was_ready = self.was_ready or event.event == "ready"
        if self._descriptor is None:
            return
        with suppress(BrokenPipeError, BlockingIOError):  # the reader has gone, or reads nothing
            os.write(self._descriptor, msgspec.json.encode(event) + b"\n")
        if event.event in _LAST:
            os.close(self._descriptor)
            self._descriptor = None


def follow(
    descriptor: int, timeout_s: float, show: Callable[[Event], None], alive: Callable[[], bool] = lambda: True
) -> Event | None:
    """Read the pipe at the waiting end, and show the progress until the sender is ready or has failed.

    Args:
        descriptor: the pipe.
        timeout_s: seconds to wait in all.
        show: called with each event of the progress, and each warning.
        alive: returns whether the sender lives. Called now and then, because the sender may not have opened the pipe yet.

    Returns:
        The last event. None: the pipe ended without a last event, or the sender is not alive.

    Raises:
        TimeoutError: the sender was neither ready nor failed within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    buffer = b""
    while True:
        line, newline, rest = buffer.partition(b"\n")
        if newline:
            buffer = rest
            event = msgspec.json.decode(line, type=Event)
            if event.event in _LAST:
                return event
            show(event)
            continue
        left_s = max(0.0, deadline - time.monotonic())
        if not select.select([descriptor], [], [], min(left_s, _LOOK_S))[0]:
            if left_s == 0.0:
                raise TimeoutError
            if not alive():
                return None
            continue
        received = os.read(descriptor, 1 << 16)
        if not received:
            return None
        buffer += received
