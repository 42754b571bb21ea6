"""Isolation of the row that kills its worker: the rows of a batch's next run, after a success and after a death.

A batch of eight rows, with row 5 as the culprit:

    rows of the run    the worker
    01234567           dies          further runs have at most 4 rows
    0123               lives
        4567           dies          at most 2 rows
        45             dies          at most 1 row
        4              lives
         5             dies          runs alone again, because the kernel or an operator may have killed the worker
         5             dies          the culprit: row 5 gets the error, and the limit ends
          67           lives

With two culprits, a second search begins behind the first culprit, with all remaining rows.

Each death in a run of several rows halves the next run at least, and a culprit dies alone twice. So a batch of n rows takes at
most floor(log2 n) + 2 deaths for each culprit. A single kill from outside adds one death and blames no row.
"""

import msgspec


class Progress(msgspec.Struct, frozen=True):
    """Progress of a batch through the model. The header of a slot stores it (`Slot.progress`).

    Attributes:
        rows: number of rows of the batch.
        next_row: first row without an outcome.
        limit: largest number of rows in a run while a culprit is being isolated. 0: no limit.
        deaths_alone: number of deaths in which `next_row` was the only row of the run, 0 or 1.
    """

    rows: int
    next_row: int = 0
    limit: int = 0
    deaths_alone: int = 0

    @property
    def next_run(self) -> range:
        """Rows of the next run, empty when every row has an outcome."""
        end = self.rows
        if self.limit:
            end = min(end, self.next_row + self.limit)
        return range(self.next_row, end)

    def after_success(self, next_row: int) -> "Progress":
        """Return the progress after a run of the rows of `next_run` before `next_row`. A model may take fewer rows at once."""
        return Progress(self.rows, next_row, self.limit)

    def after_death(self) -> tuple["Progress", int | None]:
        """Return the progress after a death in `next_run`, and the culprit, or None as long as the culprit is not found."""
        running = len(self.next_run)
        if not running:
            return self, None
        if running > 1:
            return Progress(self.rows, self.next_row, limit=running // 2), None
        if not self.deaths_alone:
            return Progress(self.rows, self.next_row, self.limit, deaths_alone=1), None
        return Progress(self.rows, self.next_row + 1), self.next_row
