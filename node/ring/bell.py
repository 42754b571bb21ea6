"""Doorbell between processes: rung by many processes, heard by a single process.

A bell only says "look". The states in the ring say which slots have work. So an unheard ring loses no work, several rings at
once count as a single ring, and a restarted process looks once without being rung.
"""

import os
import select


class Bell:
    """An eventfd (Linux). The descriptor is passed to the processes that ring or hear it."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = os.eventfd(0) if fd is None else fd

    def fileno(self) -> int:
        """Return the descriptor, readable from a ring until the bell is heard."""
        return self._fd

    def ring(self) -> None:
        """Wake the process that hears this bell."""
        os.eventfd_write(self._fd, 1)

    def hear(self) -> None:
        """Wait until the bell rings, and mute it."""
        os.read(self._fd, 8)  # unlike os.eventfd_read, os.read goes on after a signal

    def close(self) -> None:
        """Close this process's descriptor."""
        os.close(self._fd)


class Ear:
    """Waits for a bell and for a second descriptor at the same time."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._poll = select.poll()
        self._poll.register(bell.fileno(), select.POLLIN)
        self._other: int | None = None

    def watch(self, descriptor: int | None) -> None:
        """Watch a second descriptor, in place of the previous second descriptor. None: watch the bell alone."""
        if descriptor != self._other:
            if self._other is not None:
                self._poll.unregister(self._other)
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)
            self._other = descriptor

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the bell or the second descriptor is readable, and mute the bell.

        Returns:
            Whether the second descriptor is readable.
        """
        other = False
        for descriptor, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            if descriptor == self._other:
                other = True
            else:
                self._bell.hear()
        return other
