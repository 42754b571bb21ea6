"""What the processes of a lane count, in shared memory: each counter has one writer, and outlives it."""

from collections.abc import Sequence
from enum import IntEnum

READER, WRITER, FIRST_WORKER = 0, 1, 2
"""Rows of `Ring.counters`."""


class Count(IntEnum):
    """Columns of `Ring.counters`."""

    READ = 0  # reader: entries taken from the stream
    REFUSED = 1  # reader: of these, the ones answered with an error at once
    REDELIVERED = 2  # reader: entries taken again after a reader or its node died
    RUNS = 3  # worker: runs of the model
    ROWS = 4  # worker: rows of these runs
    ANSWERED = 5  # writer: records finished with a result
    FAILED = 6  # writer: records finished with an error
    REPEATED = 7  # writer: records that somebody else had finished


def totals(counters: Sequence[Sequence[int]]) -> dict[str, int]:
    """Each count summed over the processes of a lane."""
    return {count.name.lower(): sum(process[count] for process in counters) for count in Count}
