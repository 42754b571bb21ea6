"""Step 1 of the writer: the outcome of each record of a slot."""

import pytest

from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.ring.slot import Geometry, Outcome, Row, Slot
from cluster_serving.node.writer.outcome import row_outcomes

GEOMETRY = Geometry(slots=1, batch=8, slot_bytes=4096, workers=1)
NOW_MS = 1_000_000
FAILED = (ErrorCode.WORKER_DIED.value, "it died")
REFUSED = (ErrorCode.INVALID_INPUT.value, "no image")
NO_OUTCOME = (ErrorCode.INFERENCE_FAILED.value, "the worker gave no outcome for this record")
LATE = (ErrorCode.DEADLINE_EXCEEDED.value, "the deadline had passed 1 ms before the result could be published")


def new_slot(*rows: Row) -> Slot:
    slot = Slot(memoryview(bytearray(GEOMETRY.slot_stride)), GEOMETRY)
    slot.fill(b"", list(rows), sum(row.place >= 0 for row in rows))
    slot.begin()
    return slot


def row(place: int, error: tuple[str, str] | None = None, deadline_ms: int = 0) -> Row:
    return Row(b"5-%d" % (place + 1), b"uri %d" % place, b"", 0, place, [], error, deadline_ms)


@pytest.mark.parametrize(
    ("record", "stored", "error"),
    [
        pytest.param(row(0), [Outcome([0], values=[(0, 1)])], None, id="computed"),
        pytest.param(row(0), [Outcome([0], error=FAILED)], FAILED, id="failed"),
        pytest.param(row(-1, REFUSED), [], REFUSED, id="refused by the reader"),
        pytest.param(row(0), [], NO_OUTCOME, id="no outcome"),
        pytest.param(row(0, None, NOW_MS), [Outcome([0], values=[(0, 1)])], None, id="computed at the last moment"),
        pytest.param(row(0, None, NOW_MS - 1), [Outcome([0], values=[(0, 1)])], LATE, id="computed too late"),
        pytest.param(row(0, None, NOW_MS - 1), [Outcome([0], error=FAILED)], FAILED, id="failed, and too late"),
        pytest.param(
            row(0), [Outcome([0], error=FAILED), Outcome([0], values=[(0, 1)])], None, id="the later one counts"
        ),
    ],
)
def test_each_record_has_one_outcome(record: Row, stored: list[Outcome], error: tuple[str, str] | None) -> None:
    slot = new_slot(record)
    slot.add(stored, 1, 0)

    (ended,) = row_outcomes(slot, NOW_MS)

    assert (ended.row, ended.index, ended.outcome.error) == (record, 0, error)
    assert bool(ended.outcome.values) == (error is None)


@pytest.mark.parametrize("deadline_ms", [0, 1])
def test_a_record_without_room_has_its_outcome_when_its_neighbours_are_published(deadline_ms: int) -> None:
    slot = new_slot(row(0), row(1, None, deadline_ms), row(2))
    slot.add([Outcome([0, 2], values=[(0, 1), (2, 1)])], 1, 3)
    assert [ended.row.place for ended in row_outcomes(slot, NOW_MS)] == [0]

    slot.make_room()
    assert list(row_outcomes(slot, NOW_MS)) == []
    slot.add([Outcome([1, 2], error=FAILED)], 3, 0)

    assert [ended.row.place for ended in row_outcomes(slot, NOW_MS)] == [1, 2]


def test_records_keep_their_order_and_meet_their_own_outcomes() -> None:
    slot = new_slot(*map(row, range(4)), row(-1, REFUSED))
    slot.add([Outcome([0, 2], values=[(0, 1), (2, 1)]), Outcome([3, 1], values=[(3, 1), (1, 1)])], 4, 0)

    ended = list(row_outcomes(slot, NOW_MS))

    assert [each.row.place for each in ended] == [0, 1, 2, 3, -1]
    assert [each.outcome.values[each.index] for each in ended[:4]] == [(0, 1), (1, 1), (2, 1), (3, 1)]
