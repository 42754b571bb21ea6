"""Objects that begin anew in the child of a fork.

Parent and child of `os.fork` share each open connection, so that one process reads the replies to the other. The child also has a
copy of each lock, held for ever if a thread of the parent held the lock.
"""

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Object with state that belongs to one process."""

    def after_fork(self) -> None:
        """Replace the state that belongs to the parent. Called in the child, before `os.fork` returns."""
        ...


_objects: WeakSet[Forkable] = WeakSet()


def begin_anew_in_child(forkable: Forkable) -> None:
    """Call `after_fork` of an object in the child of each later fork, as long as the object lives."""
    _objects.add(forkable)


def let_go(descriptor: int) -> None:
    """Put the null device in the place of the parent's connection, in the child.

    The former owners of the descriptor then shut down, unregister or close the null device, and the parent is not disturbed. Even
    the registration with an event loop would be the parent's: parent and child share the epoll instance.
    """
    # Without a free descriptor, the child closes the connection later, which the parent survives.
    with suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, descriptor, inheritable=False)
        os.close(null)


def _after_fork() -> None:
    for forkable in list(_objects):
        forkable.after_fork()


os.register_at_fork(after_in_child=_after_fork)
