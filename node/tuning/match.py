"""Which of some rivals wins, from rounds in which each of them is measured once; pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from cluster_serving.node.config.objective import Measured, Objective
from cluster_serving.node.tuning.candidates import Candidate

_SHAPE_TIE = 0.05  # it takes cores, or memory for a copy of the model
_BATCH_TIE = 0.01
_COSTLIER_LEAD, _SIMPLER_LEAD = 7, 4  # where two are as good, the same one should be chosen every time
_MOST_ROUNDS = 19


class Match:
    """A sequential sign test between each two: who leads by enough rounds has won, and the other one is out.

    The costlier one of two wins a round in which it is better by more than a tie, the simpler one every other round. The one needs
    a lead of seven, the other four, or one that the rounds that are left of 19 cannot make up for. By how much does not count: now
    and then a turn takes twice as long, where others use the machine too, and a mean is slow to forget that. With turns that were
    measured, who is 3 % beyond a tie wins 98 of 100 matches, and who is as much short of it none; by a mean with its standard
    error, in as many rounds, it is 90 and 15.

    Args:
        rivals: the simplest first.
        objective: says what is better.
    """

    def __init__(self, rivals: Sequence[Candidate], objective: Objective) -> None:
        self.rivals = list(rivals)
        """Those that are still in: one, after 19 rounds at the latest; none, where none could be measured."""
        self._objective = objective
        self._leads: Counter[tuple[Candidate, Candidate]] = Counter()
        self._rounds = 0

    def hear(self, measured: Mapping[Candidate, Measured]) -> None:
        """One round; whoever was not measured is out."""
        self._rounds += 1
        decisive = _MOST_ROUNDS - self._rounds + 1  # more than the rounds that are left could make up for
        self.rivals = [one for one in self.rivals if one in measured]
        for pair in combinations(self.rivals, 2):
            simpler, costlier = pair
            if simpler in self.rivals and costlier in self.rivals:
                tie = _BATCH_TIE if simpler.shape == costlier.shape else _SHAPE_TIE
                is_better = self._objective.gain(measured[costlier], measured[simpler]) > 1 + tie
                self._leads[pair] += 1 if is_better else -1
                if self._leads[pair] >= min(_COSTLIER_LEAD, decisive):
                    self.rivals.remove(simpler)
                elif -self._leads[pair] >= min(_SIMPLER_LEAD, decisive):
                    self.rivals.remove(costlier)
