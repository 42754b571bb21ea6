"""A doorbell between processes: rung by many, heard by one.

The states in the ring say what there is to do; a bell only says "look". So a ring that nobody hears loses nothing, rings
that come together count as one, and whoever is restarted looks once without being rung.
"""

import os
import select


class Bell:
    """An eventfd (Linux). The descriptor is passed to the processes that ring or hear it."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = os.eventfd(0) if fd is None else fd

    def fileno(self) -> int:
        """The descriptor, readable while the bell has been rung and not been heard."""
        return self._fd

    def ring(self) -> None:
        """Wake the process that hears this bell."""
        os.eventfd_write(self._fd, 1)

    def hear(self) -> None:
        """Wait until the bell rings, and mute it."""
        os.read(self._fd, 8)  # unlike os.eventfd_read it goes on after a signal

    def close(self) -> None:
        """Close this process's descriptor."""
        os.close(self._fd)


class Ear:
    """Waits for a bell and for one other descriptor at the same time."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._poll = select.poll()
        self._poll.register(bell.fileno(), select.POLLIN)
        self._other: int | None = None

    def watch(self, descriptor: int | None) -> None:
        """Wait for this descriptor too, instead of the one before."""
        if descriptor != self._other:
            if self._other is not None:
                self._poll.unregister(self._other)
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)
            self._other = descriptor

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until one of them is readable, and mute the bell.

        Returns:
            Whether the other descriptor is.
        """
        other = False
        for descriptor, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            if descriptor == self._other:
                other = True
            else:
                self._bell.hear()
        return other
