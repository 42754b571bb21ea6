"""The slot state machine, tried exhaustively: every order of steps, and a death at every step, against the table of `ring.py`."""

import pytest

from cluster_serving.node.ring.ring import TRANSITIONS, State
from cluster_serving.node.ring.slot import Geometry, Outcome, Row
from cluster_serving.node.ring.slot import Slot as RealSlot
from support.exploration import explore
from support.slot_model import Lane
from support.slot_mutants import MUTANTS
from support.slot_world import GOOD, Slot

pytestmark = pytest.mark.slow
ARROWS = {(by, *arrow) for by, arrows in TRANSITIONS.items() for arrow in arrows}
NO_POISON = -1
REFUSES = ("reader", State.FILLING, State.DONE)
GIVES_BACK = ("writer", State.PUBLISHING, State.READY)


def test_whatever_dies_each_record_gets_one_result_and_each_slot_becomes_free() -> None:
    """Two records, of which one kills its worker, and one trouble more, at any step."""
    lane = Lane(records=2, poison=1, troubles=1)

    found = explore(lane)

    print(f"{found.states} states, {found.steps} steps")
    assert not found.wrong, found.wrong
    assert lane.taken == ARROWS - {REFUSES}, "an arrow of the table that nobody takes"


def test_what_the_reader_refuses_is_answered_too() -> None:
    lane = Lane(records=2, poison=NO_POISON, late=0, troubles=1)

    found = explore(lane)

    print(f"{found.states} states, {found.steps} steps")
    assert not found.wrong, found.wrong
    assert REFUSES in lane.taken


@pytest.mark.parametrize(("records", "poison", "troubles"), [(2, NO_POISON, 1), (2, 1, 1), (3, NO_POISON, 0)], ids=str)
def test_what_has_no_room_is_run_when_its_neighbours_are_published(records: int, poison: int, troubles: int) -> None:
    lane = Lane(records=records, poison=poison, troubles=troubles, batch=records, room=1)

    found = explore(lane)

    print(f"{found.states} states, {found.steps} steps")
    assert not found.wrong, found.wrong
    assert GIVES_BACK in lane.taken


@pytest.mark.parametrize(("records", "poison", "troubles"), [(3, NO_POISON, 0), (2, NO_POISON, 1), (2, 0, 0)], ids=str)
def test_other_loads(records: int, poison: int, troubles: int) -> None:
    found = explore(Lane(records=records, poison=poison, troubles=troubles))

    print(f"{found.states} states, {found.steps} steps")
    assert not found.wrong, found.wrong


@pytest.mark.parametrize(("mutant", "arguments"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
def test_what_is_wrong_is_found(mutant: type[Lane], arguments: dict[str, int]) -> None:
    way = explore(mutant(**arguments)).wrong

    print(way)
    assert way, f"nobody noticed: {mutant.__doc__}"


@pytest.mark.parametrize("rows", range(1, 6))
@pytest.mark.parametrize("fates", range(64), ids="{:06b}".format)
def test_the_model_and_the_real_slot_run_the_same_rows(rows: int, fates: int) -> None:
    """For each run its fate: the worker dies, or the rows get outcomes."""
    geometry = Geometry(slots=1, batch=rows, slot_bytes=64, workers=1)
    real = RealSlot(memoryview(bytearray(geometry.slot_stride)), geometry)
    real.fill(b"", [Row(b"%d-0" % row, b"u", b"", 0, row) for row in range(rows)], rows)
    model = Slot(rows=tuple(range(rows)), outcomes=(0,) * rows)

    for bit in range(6):
        if fates >> bit & 1:
            real.worker_died(("WorkerDied", "killed"))
            model = model.worker_died()
        elif run := real.progress.next_run:
            real.add([Outcome([row]) for row in run], run.stop, 0)
            model = model.with_outcomes(len(run), GOOD)._replace(next_row=run.stop, deaths_alone=0)

        assert range(model.next_row, model.next_row + model.run_rows) == real.progress.next_run
        blamed = {row for outcome in real.outcomes() if outcome.error for row in outcome.rows}
        assert {row for row, outcome in enumerate(model.outcomes) if outcome > GOOD} == blamed
