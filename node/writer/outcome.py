"""Step 1 of publishing a slot: the outcome of each record.

| decided by | outcome | held in |
|---|---|---|
| reader | refused: invalid, delivered too often, or too late to be taken | `Row.error` |
| worker | outputs, or failed, too large, invalid, or too late to be begun | `Outcome` |
| supervisor | failed: the record killed its worker, or hung it | `Outcome` |
| writer | too late to be published, although computed; failed without an outcome | this file |

Each outcome becomes the record's one result, errors included. An outcome with a code of `DEADLY` also becomes a dead letter: a copy
of the record for operators, who may replay the copy (dead_letters.py).
"""

from collections.abc import Iterator

import msgspec

from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.ring.deadline import late
from cluster_serving.node.ring.slot import Outcome, Row, Slot

DEADLY = frozenset(
    {
        ErrorCode.INFERENCE_FAILED,
        ErrorCode.RESULT_TOO_LARGE,
        ErrorCode.WORKER_DIED,
        ErrorCode.WORKER_HUNG,
        ErrorCode.DELIVERED_TOO_OFTEN,
    }
)
"""Errors of dead letters. No node could process the record, but a different model or setting may. Faults of the client are
not among these errors.
"""

_NO_OUTCOME = (ErrorCode.INFERENCE_FAILED, "the worker gave no outcome for this record")
_NONE = (None, 0)


class RowOutcome(msgspec.Struct, frozen=True, gc=False):
    """Record, its outcome, and the index of the record among the rows of the outcome."""

    row: Row
    outcome: Outcome
    index: int = 0


def row_outcomes(slot: Slot, now_ms: float) -> Iterator[RowOutcome]:
    """Yield the outcome of each record of a slot, in the order of the row table. Rows that had no room are left out.

    Args:
        slot: slot to read. The slot is not changed.
        now_ms: Unix time in ms on Redis' clock.
    """
    # A row has two outcomes when a worker was killed while the outcomes were stored. The later outcome counts.
    found = {place: (outcome, index) for outcome in slot.outcomes() for index, place in enumerate(outcome.rows)}
    overdue = 0 < slot.deadline_ms < now_ms
    rows = slot.table()
    if slot.unfinished:
        rows = [row for row in rows if row.place < slot.progress.next_row]
    for row in rows:
        outcome, index = found.get(row.place, _NONE)
        if outcome is None:
            yield RowOutcome(row, Outcome([row.place], error=row.error or _NO_OUTCOME))
        elif overdue and 0 < row.deadline_ms < now_ms and outcome.error is None:
            error = late(now_ms - row.deadline_ms, "the result could be published")
            yield RowOutcome(row, Outcome([row.place], error=error))
        else:
            yield RowOutcome(row, outcome, index)
