"""Which of some rivals wins, from rounds in which each of them is measured once; pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from cluster_serving.node.tuning.candidates import Candidate
from cluster_serving.node.tuning.objective import Measured, Objective

_SHAPE_TIE = 0.05  # it takes cores, or memory for a copy of the model
_BATCH_TIE = 0.01
_ENOUGH, _MOST_ROUNDS = 5, 21


class Match:
    """A sequential sign test between each two: who leads by five rounds has won, and the other one is out.

    The costlier one of two wins a round in which it is better by more than a tie, the simpler one every other round. By how much
    does not count: now and then a turn takes twice as long, where others use the machine too, and a mean is slow to forget that.
    On turns that were measured it sees a gain of 5.5 % beyond a tie of 3 % in 98 of 100 cases, and one where there is none in 1; a
    mean with its standard error, in as many rounds, in 85 and in 15.

    Args:
        rivals: the simplest first.
        objective: says what is better.
    """

    def __init__(self, rivals: Sequence[Candidate], objective: Objective) -> None:
        self.rivals = list(rivals)
        """Those that are still in; one, after 21 rounds at the latest."""
        self._objective = objective
        self._leads: Counter[tuple[Candidate, Candidate]] = Counter()
        self._rounds = 0

    def hear(self, measured: Mapping[Candidate, Measured]) -> None:
        """One round; whoever was not measured is out."""
        self._rounds += 1
        decisive = min(_ENOUGH, _MOST_ROUNDS - self._rounds + 1)  # more than the rounds that are left could take back
        self.rivals = [one for one in self.rivals if one in measured]
        for pair in combinations(list(self.rivals), 2):
            simpler, costlier = pair
            if simpler in self.rivals and costlier in self.rivals:
                tie = _BATCH_TIE if simpler.shape == costlier.shape else _SHAPE_TIE
                is_better = self._objective.gain(measured[costlier], measured[simpler]) > 1 + tie
                self._leads[pair] += 1 if is_better else -1
                if abs(self._leads[pair]) >= decisive:
                    self.rivals.remove(simpler if self._leads[pair] > 0 else costlier)
