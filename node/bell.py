"""A doorbell between processes: rung by many, heard by one.

The states in the ring say what there is to do; a bell only says "look". So a ring that nobody hears loses nothing, rings
that come together count as one, and whoever is restarted looks once without being rung.
"""

import os
import select
from typing import Protocol


class HasFileno(Protocol):
    """Anything that `select` can wait for."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


class Bell:
    """An eventfd (Linux). The descriptor is passed to the processes that ring or hear it."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK) if fd is None else fd

    def fileno(self) -> int:
        """The descriptor, readable while the bell has been rung and not been heard."""
        return self._fd

    def ring(self) -> None:
        """Wake the process that hears this bell."""
        os.eventfd_write(self._fd, 1)

    def wait(self, timeout_s: float | None = None, *others: HasFileno) -> list[HasFileno]:
        """Wait until the bell rings or another descriptor is readable, and mute the bell.

        Returns:
            Which of the others are readable.
        """
        ready, _, _ = select.select([self, *others], [], [], timeout_s)
        if self in ready:
            ready.remove(self)
            os.eventfd_read(self._fd)
        return ready

    def close(self) -> None:
        """Close this process's descriptor."""
        os.close(self._fd)
