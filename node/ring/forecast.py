"""Forecast of the time until a record is answered, from the last runs and from the rows ahead of the record.

A record that would be late is refused at once. Without refusals, first come, first served would be the worst order when more
records with deadlines come than a node can serve: each record would begin when it is about to expire, and all records would be
computed in vain.

Batches are kept as small as the deadlines require. A batch that runs for as long as its records have to live comes too late for
all its records.
"""

from collections import deque
from typing import NamedTuple

_RUNS = 32  # last runs that the time for a row is taken from
_MARGIN = 1.3  # time for a row, to the mean time: with less, more rows were computed and came too late under overload
_RUNS_A_LIFE = 4  # runs that fit into the life of a record: a batch runs for a quarter of its records' time to live
_OWN_RUN = 1.5  # half a run to spare, for publishing and for work that comes in between


class RowTimes:
    """Milliseconds of a worker per row: the mean of the last runs with a margin.

    Rows may cost unequally. Taken for as dear as the dearest row, all rows ahead of a record together would seem to take many
    times as long as they take. The longest run does not count, because a single run may have been held up: the first run of a
    worker often is.
    """

    def __init__(self) -> None:
        self._runs: deque[tuple[float, float, int]] = deque()  # ms per row, ms, rows
        self._total_ms, self._total_rows = 0.0, 0

    def add(self, run_ms: float, rows: int) -> float:
        """Note a run, and return the milliseconds that a row of the next runs may take, 0 after the first run: not known."""
        self._runs.append((run_ms / rows, run_ms, rows))
        self._total_ms += run_ms
        self._total_rows += rows
        if len(self._runs) == 1:
            return 0.0
        if len(self._runs) > _RUNS:
            _, oldest_ms, oldest_rows = self._runs.popleft()
            self._total_ms -= oldest_ms
            self._total_rows -= oldest_rows
        _, longest_ms, longest_rows = max(self._runs)
        return _MARGIN * (self._total_ms - longest_ms) / (self._total_rows - longest_rows)


class Forecast(NamedTuple):
    """Expected times of a lane.

    In an empty lane a record is forecast to take no time. A try costs nothing there, and without tries an estimate that is far
    too long would never be corrected.

    Attributes:
        row_ms: milliseconds that a worker takes for a row. 0: not known.
        ahead_ms: milliseconds until the rows in the lane have been run.
        most_rows: largest number of rows in a batch.
    """

    row_ms: float = 0
    ahead_ms: float = 0
    most_rows: int = 1

    def answer_ms(self, life_ms: float) -> float:
        """Return the milliseconds until the answer of a record that comes now and was sent with `life_ms` to live."""
        own_ms = self.row_ms * rows_of(self.row_ms, life_ms, self.most_rows)
        return self.ahead_ms + _OWN_RUN * own_ms if self.ahead_ms else 0.0

    def longest_ms(self, records: int) -> float:
        """Return the most milliseconds until the answers of `records` records that come now."""
        return self.ahead_ms + self.row_ms * (records + _OWN_RUN * self.most_rows)


NO_FORECAST = Forecast()


def rows_of(row_ms: float, life_ms: float, most_rows: int) -> int:
    """Return the number of rows in a batch of records that were sent with `life_ms` to live.

    A short life means few rows, because a record waits for later rows and every row waits for the run of all rows.
    """
    return max(1, min(most_rows, int(life_ms / (_RUNS_A_LIFE * row_ms)))) if row_ms else most_rows
