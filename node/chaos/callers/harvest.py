"""Harvest of a run: all results are taken off the queue at the end, by loops that do not run to their end."""

from cluster_serving.node.chaos.callers.caller import Caller
from cluster_serving.node.chaos.callers.interrupts import interrupted
from cluster_serving.node.chaos.callers.kit import Kit
from cluster_serving.node.chaos.records import RIGHT

_QUIET_S = 0.05
_MOST = 1000
_INTERRUPTED = 0.2
_SHOWN = 200


class Harvest(Caller):
    """Takes all results with loops that are left early and interrupted."""

    repeats = False

    def __init__(self, name: str, kit: Kit) -> None:
        super().__init__(name, kit)
        self._more = True
        self._again = 0

    def round(self) -> None:
        """Take results until none is left."""
        random = self.calls.random
        while self._more:
            if random.random() < _INTERRUPTED:
                self.tally.stopped += interrupted(random, self._take)
                self._more = True
            else:
                self._take()

    def _take(self) -> None:
        kit, taken = self.calls.kit, self.tally.taken
        most = self.calls.random.randint(1, _MOST)
        self._more = False
        for number, result in enumerate(self.calls.output.results(timeout=_QUIET_S)):
            uri = result.uri
            if uri in kit.sent:  # else of the rehearsal, or of a call that was given up
                self._again += uri in taken
                if self._again > self.tally.stopped:  # an interrupt may bring a result a second time
                    self.tally.failed.append(f"the result of {uri} was taken twice")
                if result.error is not None:
                    taken[uri] = result.error[0]
                else:
                    taken[uri] = RIGHT if kit.answers.right(*kit.sent[uri], result) else f"wrong: {result!r}"[:_SHOWN]
            if number == most:
                self._more = True
                return
