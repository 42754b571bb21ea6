"""Whose turn it is with the slots of a worker that has ended."""

from collections.abc import Iterator

import pytest

from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Geometry, Row
from cluster_serving.node.supervisor.recovery import recover

ERROR = (ErrorCode.WORKER_DIED, "why")


@pytest.fixture
def ring() -> Iterator[Ring]:
    """Slots 0 and 1 of worker 1, the first RUNNING and the second READY, and one of worker 2; three workers that serve."""
    ring = Ring(Geometry(slots=6, batch=4, slot_bytes=4096, workers=3))
    for worker in range(3):
        ring.set_serving(worker, True)
    for slot, worker in enumerate((1, 1, 2)):
        ring.move("reader", slot, State.FILLING)
        ring.slots[slot].fill(b"", [Row(b"%d" % row, b"", b"", 0, row) for row in range(4)], 4)
        ring.hand_over("reader", slot, worker, slot + 1)
    ring.move("worker", 0, State.RUNNING)
    ring.slots[0].begin()
    yield ring
    ring.close()


def owners(ring: Ring) -> list[tuple[int, State]]:
    return [(ring.owner(slot), ring.state(slot)) for slot in range(3)]


def test_a_successor_runs_in_halves_what_was_running_and_others_what_waited(ring: Ring) -> None:
    assert recover(ring, 1, True, ERROR)

    assert owners(ring) == [(1, State.READY), (0, State.READY), (2, State.READY)]
    assert [len(ring.slots[slot].progress.next_run) for slot in (0, 1)] == [2, 4]


def test_without_a_successor_everything_goes_to_neighbours(ring: Ring) -> None:
    assert recover(ring, 1, False, ERROR)

    assert owners(ring) == [(0, State.READY), (0, State.READY), (2, State.READY)]
    assert len(ring.slots[0].progress.next_run) == 2


def test_where_nobody_serves_the_first_worker_has_them_when_it_is_back(ring: Ring) -> None:
    ring.set_serving(0, False)
    ring.set_serving(2, False)

    recover(ring, 1, False, ERROR)

    assert owners(ring) == [(0, State.READY), (0, State.READY), (2, State.READY)]


def test_where_nobody_else_serves_a_successor_has_all(ring: Ring) -> None:
    ring.set_serving(0, False)
    ring.set_serving(2, False)

    recover(ring, 1, True, ERROR)

    assert owners(ring) == [(1, State.READY), (1, State.READY), (2, State.READY)]


def test_who_ran_nothing_was_not_interrupted(ring: Ring) -> None:
    assert not recover(ring, 2, True, ERROR)

    assert owners(ring)[2] == (0, State.READY)
