"""How long until a record is answered: by the last runs, and by what is ahead of it. One that would be late is refused at once.

First come, first served would be the worst order for records with deadlines when more come than a node can serve: each would be
begun when it is about to expire, and all would be computed in vain. Batches are kept as small as the deadlines want them: one that
runs for as long as its records have to live comes too late for all of them.
"""

from collections import deque
from typing import NamedTuple

_RUNS = 8
_RUNS_A_LIFE = 4
_OWN_RUN = 1.5  # half a run to spare: for publishing, and for what comes in between


class RowTimes:
    """How long a worker takes for a row: the second longest of its last runs, since one alone may have been held up."""

    def __init__(self) -> None:
        self._last_ms: deque[float] = deque(maxlen=_RUNS)

    def add(self, run_ms: float, rows: int) -> float:
        """Note a run; how long a row of the next one may take."""
        self._last_ms.append(run_ms / rows)
        return sorted(self._last_ms)[-2:][0]


class Forecast(NamedTuple):
    """What is to be expected of a lane.

    In an empty lane a record takes no time: there is nothing to lose by trying, and an estimate that is far too long would never be
    mended if nobody tried.

    Attributes:
        row_ms: how long a worker takes for a row; 0: nothing is known.
        ahead_ms: until what is in the lane has been run.
        most_rows: of a batch.
    """

    row_ms: float = 0
    ahead_ms: float = 0
    most_rows: int = 1

    def answer_ms(self, life_ms: float) -> float:
        """How long a record that comes now takes to its answer, if it was sent with so long to live."""
        own_ms = self.row_ms * rows_of(self.row_ms, life_ms, self.most_rows)
        return self.ahead_ms + _OWN_RUN * own_ms if self.ahead_ms else 0.0

    def longest_ms(self, records: int) -> float:
        """Until so many records that come now have their answers, at the most."""
        return self.ahead_ms + self.row_ms * (records + _OWN_RUN * self.most_rows)


NO_FORECAST = Forecast()


def rows_of(row_ms: float, life_ms: float, most_rows: int) -> int:
    """How many rows a batch of records has that were sent with so long to live: one waits for others, and all for each other."""
    return max(1, min(most_rows, int(life_ms / (_RUNS_A_LIFE * row_ms)))) if row_ms else most_rows
