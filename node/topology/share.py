"""Share of the machine that the node may use, watched at run time: a change counts when the share has settled."""

import os
import time

from cluster_serving.node.topology.budget import Allowance, Budget, read_allowance, read_budget

_LOOK_S = 0.5
_SETTLED = 2  # looks with the same result before a change counts: the node does not follow a budget that keeps changing


class Share:
    """Share of the machine that this process may use. Affinity masks and control groups change the share at run time."""

    def __init__(self) -> None:
        self._known = self._seen = self._read()
        self._times_seen = 0
        self._due_s = 0.0

    def changed(self) -> bool:
        """Return whether the share has changed and stays changed. Looks twice a second."""
        if time.monotonic() < self._due_s:
            return False
        self._due_s = time.monotonic() + _LOOK_S
        return self.look(self._read())

    def look(self, seen: Allowance) -> bool:
        """Take note of the current allowance, and return whether the node should follow a change."""
        self._times_seen = self._times_seen + 1 if seen == self._seen else 1
        self._seen = seen
        if seen == self._known or self._times_seen < _SETTLED:
            return False
        self._known = seen
        return True

    def _read(self) -> Allowance:
        return read_allowance(os.sched_getaffinity(0))

    @property
    def budget(self) -> Budget:
        """Current budget of this process."""
        return read_budget(self._known)
