"""How a node in the background tells the `start` that waits for it: JSON lines through a pipe.

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


class Event(msgspec.Struct, omit_defaults=True):
    """One line."""

    event: str
    text: str
    code: int = 0


class Reporter:
    """The node's end; without a descriptor it is silent. Callable as `report(event, text)`."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self.was_ready = False
        if descriptor is not None:
            os.set_inheritable(descriptor, False)  # a child that held it would hide the node's death

    def __call__(self, event: str, text: str) -> None:
        """Tell one event."""
        self.send(Event(event, text))

    def send(self, event: Event) -> None:
        """Tell one event; `ready` and `failed` close the pipe, and what comes later is dropped."""
        self.was_ready = self.was_ready or event.event == "ready"
        if self._descriptor is None:
            return
        with suppress(BrokenPipeError):  # nobody waits any more
            os.write(self._descriptor, msgspec.json.encode(event) + b"\n")
        if event.event in {"ready", "failed"}:
            os.close(self._descriptor)
            self._descriptor = None


def follow(descriptor: int, timeout_s: float, show: Callable[[str], None]) -> Event | None:
    """The waiting end: pass progress on until the node is ready or has failed.

    Returns:
        The last event; None when the pipe ended without one.

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
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        received = os.read(descriptor, 1 << 16)
        if not received:
            return None
        buffer += received
