"""Steps down: fewer tasks must have been enough for a while, and then go step by step. Pure."""

import math
from collections import deque

from cluster_serving.swarm.autoscale.decision import Decision, Reason, counted

_STEP_S = 15.0  # between two steps, for the task that goes to drain
_STEP = 10  # a step is a tenth of the tasks, at least one


class Window:
    """Numbers that were needed lately.

    Args:
        window_s: seconds for which fewer tasks must have been enough.
        noun: word for a task.
        most: most tasks that may be ordered, however many there are.
    """

    def __init__(self, window_s: float, noun: str, most: int) -> None:
        self._window_s = window_s
        self._noun = noun
        self._most = most
        self._needs: deque[tuple[float, int]] = deque()
        self._stepped_s = -math.inf

    def forget(self) -> None:
        """Forget all numbers, after a time without facts."""
        self._needs.clear()

    def observe(self, now_s: float, needed: int) -> None:
        """Add the number that is needed now."""
        self._needs.append((now_s, needed))
        while len(self._needs) > 1 and now_s - self._needs[1][0] >= self._window_s:
            self._needs.popleft()  # the oldest that is left is as old as the window, once there are any

    def down(self, now_s: float, why: str, replicas: int) -> Decision:
        """Decide about a step down from `replicas` tasks, more than are needed now."""
        needed = self._needs[-1][1]
        highest = max(number for _, number in self._needs)
        present = counted(replicas, self._noun)
        if now_s - self._needs[0][0] < self._window_s or highest >= replicas:
            words = f"{present}: {needed} would do, but not for {self._window_s:g} s yet: {why}"
            return Decision(replicas, Reason.WINDOW, words)
        if now_s - self._stepped_s < _STEP_S:
            return Decision(replicas, Reason.WINDOW, f"{present} until the last step is done: {why}")
        self._stepped_s = now_s
        wanted = max(highest, min(self._most, replicas - max(1, replicas // _STEP)))
        words = f"{counted(wanted, self._noun)} from {replicas}, enough for {self._window_s:g} s: {why}"
        return Decision(wanted, Reason.DOWN, words)
