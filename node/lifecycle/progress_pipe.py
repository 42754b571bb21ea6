"""How a node in the background tells the `start` or `restart` that waits for it: JSON lines through a pipe.

{"event": "progress", "text": ...}              any number of times
{"event": "ready", "text": ...}                 once, and nothing after it
{"event": "failed", "text": ..., "code": N}     once instead; without a code, that of the process counts
"""

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

_LOOK_S = 1.0


class Event(msgspec.Struct, omit_defaults=True):
    """One line."""

    event: str
    text: str
    code: int = 0


class Reporter:
    """The node's end; without a descriptor it is silent. Callable as `report(event, text, code)`."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self.was_ready = False
        if descriptor is not None:
            os.set_inheritable(descriptor, False)  # a child that held it would hide the node's death

    def __call__(self, event: str, text: str, code: int = 0) -> None:
        """Tell one event."""
        self.send(Event(event, text.encode(errors="backslashreplace").decode(), code))

    def send(self, event: Event) -> None:
        """Tell one event; `ready` and `failed` close the pipe, and what comes later is dropped."""
        self.was_ready = self.was_ready or event.event == "ready"
        if self._descriptor is None:
            return
        with suppress(BrokenPipeError, BlockingIOError):  # nobody waits any more, or who does reads nothing
            os.write(self._descriptor, msgspec.json.encode(event) + b"\n")
        if event.event in {"ready", "failed"}:
            os.close(self._descriptor)
            self._descriptor = None


def follow(
    descriptor: int, timeout_s: float, show: Callable[[str], None], alive: Callable[[], bool] = lambda: True
) -> Event | None:
    """The waiting end: pass progress on until the node is ready or has failed.

    Args:
        descriptor: the pipe.
        timeout_s: how long to wait in all.
        show: told the progress.
        alive: asked now and then, whether the node is there at all: nobody may have opened the pipe yet.

    Returns:
        The last event; None when the pipe ended without one, or the node is not alive.

    Raises:
        TimeoutError: neither happened in `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    buffer = b""
    while True:
        line, newline, rest = buffer.partition(b"\n")
        if newline:
            buffer = rest
            event = msgspec.json.decode(line, type=Event)
            if event.event != "progress":
                return event
            show(event.text)
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
