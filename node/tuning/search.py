"""Search for the best candidate with short measurements.

for each shape, simplest first:
    start lanes and measure them with the usual batch size
    keep the better of the new shape and the best shape so far, and end the lanes of the loser
for the winning shape:
    try larger and smaller batches, until a batch size loses a tenth

Close candidates are measured in turns, so a machine that is slower for a moment is slower for both. `match.py` decides after how
many rounds the result is sure. The simpler shape and the more usual batch win, unless a rival is better by more than a tie.
"""

from collections.abc import Sequence
from itertools import cycle
from statistics import median
from typing import Protocol

import msgspec

from cluster_serving.node.config.arrangement import DEFAULT_BATCH
from cluster_serving.node.config.choice import Shape
from cluster_serving.node.config.objective import Measured, Objective
from cluster_serving.node.tuning.candidates import Candidate, ranked
from cluster_serving.node.tuning.errors import Refused, TuningError
from cluster_serving.node.tuning.match import Match

_NEAR = 0.85  # share of the rival's figure. A candidate below cannot win, whatever the noise.
_NEXT = 0.9  # share of the previous batch size's figure. Below, further sizes are not worth a try.
_SLOW_BATCH_S = 1.0  # a longer batch is not worth the time of a trial


class Tried(msgspec.Struct):
    """Candidate, its measurement in each turn, and the reason why the candidate was refused (empty: not refused)."""

    candidate: Candidate
    turns: list[Measured]
    refused: str = ""

    @property
    def middle(self) -> Measured:
        """Median of each figure."""
        return Measured(*(median(values) for values in zip(*self.turns, strict=True)))


class SearchProgress:
    """Receiver of the progress of a search. The base class shows nothing."""

    def begin(self, shapes: list[Shape]) -> None:
        """Receive the shapes that will be tried."""

    def opening(self, shape: Shape) -> None:
        """Receive the shape that is started next."""

    def tried(self, tried: Tried) -> None:
        """Receive a measured or refused candidate."""

    def check(self) -> None:
        """Do nothing, or raise an exception to end the search. Called again and again."""


class Measures(Protocol):
    """Source of measurements: a stand, or plain arithmetic."""

    def open(self, shape: Shape, batch: int) -> None:
        """Make a shape ready for batches of at most `batch` records."""
        ...

    def measure(self, candidate: Candidate, seconds: float) -> Measured:
        """Measure a candidate of an open shape."""
        ...

    def close(self, shape: Shape) -> None:
        """End the lanes of a shape."""
        ...


class Search:
    """Search for the best candidate.

    Args:
        stand: makes the measurements.
        objective: compares two measurements.
        sizes: batch sizes to choose from, smallest first.
        seconds: duration of one measurement, at least.
        watch: receives the progress.
        exhaustive: measure every batch size of every shape.
    """

    def __init__(
        self,
        stand: Measures,
        objective: Objective,
        sizes: Sequence[int],
        seconds: float,
        watch: SearchProgress,
        *,
        exhaustive: bool = False,
    ) -> None:
        self._stand = stand
        self._objective = objective
        self._sizes = sizes
        self._seconds = seconds
        self._exhaustive = exhaustive
        self._watch = watch
        self._usual: int | None = None
        self.tried: dict[Candidate, Tried] = {}

    def run(self, shapes: Sequence[Shape]) -> Candidate:
        """Return the best candidate of the given shapes. The lanes of the best shape are still open afterwards.

        Raises:
            TuningError: no candidate can be measured.
        """
        champion: Candidate | None = None
        for shape in shapes:
            self._watch.opening(shape)
            try:
                self._stand.open(shape, self._sizes[-1])
            except Refused as refused:
                self._refuse(Candidate(shape, self._sizes[-1]), str(refused))
                continue
            winner = self._better(champion, self._first(shape))
            for loser in {shape, *([champion.shape] if champion else [])} - {winner.shape if winner else None}:
                self._stand.close(loser)
            champion = winner
        winner = champion
        if champion is not None:
            # A larger or a smaller batch of the winning shape has to win against the champion.
            at = self._sizes.index(champion.batch)
            found = [self._climb(champion, sizes) for sizes in (self._sizes[at + 1 :], self._sizes[:at][::-1])]
            rivals = [one for one in found if one is not None]
            winner = self._in_turns([champion, *rivals]) if rivals else champion
        if winner is None:
            reasons = [tried.refused for tried in self.tried.values() if tried.refused]
            raise TuningError(f"nothing could be measured: {reasons[0]}")
        return winner

    def _first(self, shape: Shape) -> Candidate | None:
        """Measure a shape with the usual batch, or the largest smaller batch that meets the objective. None: the shape fails."""
        warm = self._measure(Candidate(shape, self._sizes[min(2, len(self._sizes) - 1)]), note=False)
        if warm is None:
            return None
        if self._usual is None:
            most = warm.rate / shape.workers * _SLOW_BATCH_S
            sizes = [size for size in self._sizes if size <= min(DEFAULT_BATCH, most)]
            self._usual = max(sizes, default=self._sizes[0])
        found: dict[Candidate, Measured] = {}
        at = self._sizes.index(self._usual)
        for size in self._sizes if self._exhaustive else self._sizes[at::-1]:
            if (measured := self._measure(candidate := Candidate(shape, size))) is not None:
                found[candidate] = measured
            if not self._exhaustive and (measured is None or self._objective.met(measured)):
                break
        return ranked(found, self._objective)[0] if found else None

    def _better(self, champion: Candidate | None, challenger: Candidate | None) -> Candidate | None:
        """Return the better of the best candidate so far and a challenger."""
        if champion is None or challenger is None:
            return challenger or champion
        # Measure each candidate twice: the machine may have been slower during one turn.
        before = self.tried[champion].middle
        now, again = self._measure(champion), self._measure(challenger)
        if now is None or again is None:
            return challenger if again else champion if now else None
        gains = [self._objective.gain(self.tried[challenger].turns[0], before), self._objective.gain(again, now)]
        if min(gains) <= 1 / _NEAR and max(gains) >= _NEAR:
            return self._in_turns([champion, challenger])
        return champion if gains[0] < 1 else challenger

    def _climb(self, champion: Candidate, sizes: Sequence[int]) -> Candidate | None:
        """Return the best of the sizes, tried until a size falls behind the size before. None: the first size falls behind."""
        found: dict[Candidate, Measured] = {}
        before = self.tried[champion].middle
        for size in sizes:
            candidate = Candidate(champion.shape, size)
            tried = self.tried.get(candidate)
            is_slow = size * champion.shape.workers / before.rate > _SLOW_BATCH_S
            if tried.refused if tried else is_slow:
                break
            measured = tried.middle if tried else self._measure(candidate)
            if measured is None or self._objective.gain(measured, before) < _NEXT:
                break
            found[candidate] = before = measured
        return ranked(found, self._objective)[0] if found else None

    def _in_turns(self, rivals: list[Candidate]) -> Candidate | None:
        """Return the winner of a match. None: no rival could be measured to the end."""
        usual = self._usual or DEFAULT_BATCH
        match = Match(sorted(rivals, key=lambda one: one.cost(usual)), self._objective)
        for direction in cycle((1, -1)):
            if len(match.rivals) < 2:
                break
            turns = {one: self._measure(one) for one in match.rivals[::direction]}
            match.hear({one: measured for one, measured in turns.items() if measured is not None})
        return next(iter(match.rivals), None)

    def _measure(self, candidate: Candidate, *, note: bool = True) -> Measured | None:
        """Measure a candidate once. None: the candidate is refused."""
        try:
            measured = self._stand.measure(candidate, self._seconds)
        except Refused as refused:
            self._refuse(candidate, str(refused))
            return None
        if note:
            tried = self.tried.setdefault(candidate, Tried(candidate, []))
            tried.turns.append(measured)
            self._watch.tried(tried)
        return measured

    def _refuse(self, candidate: Candidate, reason: str) -> None:
        tried = self.tried.setdefault(candidate, Tried(candidate, []))
        tried.refused = reason
        self._watch.tried(tried)
