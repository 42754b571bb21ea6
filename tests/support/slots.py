"""Slots of a node's ring, looked at from outside."""

import os
from pathlib import Path

from cluster_serving.node.ring.ring import NAME, Ring, State


def slot_states(pid: int) -> set[State]:
    """Return the states of the slots of the ring that a supervisor holds."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if NAME not in str(descriptor.readlink()):
                continue
            ring = Ring.looked_at(os.open(descriptor, os.O_RDONLY))
        except FileNotFoundError:  # closed since
            continue
        try:
            return {ring.state(slot) for slot in range(ring.geometry.slots)}
        finally:
            ring.close()
    raise AssertionError("the supervisor holds no ring")
