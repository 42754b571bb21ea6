"""Pick the winner among rivals, from rounds in which each rival is measured once. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from cluster_serving.node.config.objective import Measured, Objective
from cluster_serving.node.tuning.candidates import Candidate

_SHAPE_TIE = 0.05  # a costlier shape takes cores, or memory for a copy of the model
_BATCH_TIE = 0.01
_COSTLIER_LEAD, _SIMPLER_LEAD = 7, 4  # between two equals, the choice should be the same every time
_MOST_ROUNDS = 19


class Match:
    """Sequential sign test for each pair of rivals: a rival with a long enough lead in rounds wins, and the loser is out.

    The costlier rival wins a round by being better by more than a tie. Every other round goes to the simpler rival. The costlier
    rival needs a lead of seven rounds, the simpler rival a lead of four. A lead that the rest of the 19 rounds cannot make up for
    is also enough.

    Only the sign of a round counts, not the margin. On a shared machine a turn takes twice as long now and then, and a mean is
    slow to forget a slow turn. With measured turns, a rival 3 % beyond a tie wins 98 of 100 matches, and a rival 3 % short of a
    tie wins none. With a mean and its standard error, in as many rounds, the figures are 90 and 15.

    Args:
        rivals: simplest first.
        objective: compares two measurements.
    """

    def __init__(self, rivals: Sequence[Candidate], objective: Objective) -> None:
        self.rivals = list(rivals)
        """Rivals still in the match. One rival is left after 19 rounds at the latest, or none when no rival could be measured."""
        self._objective = objective
        self._leads: Counter[tuple[Candidate, Candidate]] = Counter()
        self._rounds = 0

    def hear(self, measured: Mapping[Candidate, Measured]) -> None:
        """Count one round. A rival without a measurement is out."""
        self._rounds += 1
        decisive = _MOST_ROUNDS - self._rounds + 1  # a lead that the remaining rounds cannot make up for
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
