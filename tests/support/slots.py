"""Ring of a node and its slots, looked at from outside."""

import os
from contextlib import suppress
from pathlib import Path

from cluster_serving.node.ring.ring import NAME, Ring, State


def ring_path(pid: int) -> Path:
    """Return the path of the ring that a supervisor holds, below /proc."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            if NAME in str(path.readlink()):
                return path
    raise AssertionError("the supervisor holds no ring")


def slot_states(pid: int) -> set[State]:
    """Return the states of the slots of the ring that a supervisor holds."""
    ring = Ring.looked_at(os.open(ring_path(pid), os.O_RDONLY))
    try:
        return {ring.state(slot) for slot in range(ring.geometry.slots)}
    finally:
        ring.close()
