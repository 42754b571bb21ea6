"""The ring: its state machine, its look-ups, and what two processes see of one segment."""

import os
import resource
import time
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from cluster_serving.node.ring.metrics import COUNTER_CELLS, MEASURE_CELLS
from cluster_serving.node.ring.ring import TRANSITIONS, Ring, RingError, State
from cluster_serving.node.ring.slot import Geometry, Row

GEOMETRY = Geometry(slots=4, batch=2, slot_bytes=4096, workers=3)
FREE, FILLING, READY, RUNNING, DONE, PUBLISHING = State
WAY = (("reader", FILLING), ("reader", READY), ("worker", RUNNING), ("worker", DONE), ("writer", PUBLISHING))
LEGAL = {
    ("reader", FREE, FILLING),
    ("reader", FILLING, READY),
    ("reader", FILLING, DONE),
    ("reader", FILLING, FREE),
    ("worker", READY, RUNNING),
    ("worker", RUNNING, DONE),
    ("writer", DONE, PUBLISHING),
    ("writer", PUBLISHING, FREE),
    ("writer", PUBLISHING, READY),
    ("writer", PUBLISHING, DONE),
    ("supervisor", RUNNING, READY),
}
ARROWS = list(product(TRANSITIONS, State, State))


@pytest.fixture
def ring() -> Iterator[Ring]:
    ring = Ring(GEOMETRY)
    yield ring
    ring.close()


def lead(ring: Ring, slot: int, to: State, worker: int = 0, sequence: int = 0) -> None:
    """Take a free slot to a state along the arrows."""
    for by, state in WAY[:to]:
        if state == READY:
            ring.hand_over(by, slot, worker, sequence)
        else:
            ring.move(by, slot, state)


@pytest.mark.parametrize(("by", "state", "to"), [arrow for arrow in ARROWS if arrow in LEGAL])
def test_every_arrow_can_be_taken(ring: Ring, by: str, state: State, to: State) -> None:
    lead(ring, 1, state)

    ring.move(by, 1, to)

    assert [ring.state(slot) for slot in range(4)] == [FREE, to, FREE, FREE]


@pytest.mark.parametrize(("by", "state", "to"), [arrow for arrow in ARROWS if arrow not in LEGAL])
def test_nothing_else_can(ring: Ring, by: str, state: State, to: State) -> None:
    lead(ring, 1, state)

    with pytest.raises(RingError, match=f"the {by} cannot move slot 1 from {state.name} to {to.name}"):
        ring.move(by, 1, to)

    assert ring.state(1) == state


def test_a_new_ring_is_free(ring: Ring) -> None:
    assert ring.every(FREE) == [0, 1, 2, 3]
    assert ring.newest() == 0
    assert ring.least_loaded() is None
    assert not ring.reader_wants


@pytest.mark.parametrize("slots", [0, -1, 256])
def test_a_ring_has_a_bounded_number_of_slots(slots: int) -> None:
    with pytest.raises(RingError, match=f"a ring has 1 to 255 slots, not {slots}"):
        Ring(Geometry(slots=slots, batch=1, slot_bytes=4096, workers=1))


def test_the_largest_ring_keeps_its_parts_apart() -> None:
    """Each area and each number is as large as the largest ring needs it."""
    ring = Ring(Geometry(slots=255, batch=1, slot_bytes=1, workers=255))

    ring.reader_wants = ring.consuming = True
    ring.most_rows, ring.most_slots, ring.row_output_bytes, ring.clock_offset_ms = numbers = (3, 4, 5, -6)
    ring.row_ms = 2.5
    for number in range(257):
        ring.beat(number)
    for worker in range(255):
        ring.set_serving(worker, True)
    for slot in range(255):
        lead(ring, slot, READY, worker=slot, sequence=slot + 1)
    for process in ring.counters:
        process[COUNTER_CELLS - 1] = -1
    for cells in ring.measures:
        cells[0], cells[MEASURE_CELLS - 1] = 0.5, 1.5
    ring.slots[0].fill(b"first", [], 0)
    ring.slots[254].fill(b"last", [], 0)

    assert ring.every(READY) == list(range(255))
    assert [ring.owned(worker, READY) for worker in range(255)] == [[slot] for slot in range(255)]
    assert ring.least_loaded() == (0, 1)
    assert ring.newest() == 255
    assert max(map(ring.silent_s, range(257))) < 60
    assert (ring.reader_wants, ring.consuming, ring.row_ms) == (True, True, 2.5)
    assert (ring.most_rows, ring.most_slots, ring.row_output_bytes, ring.clock_offset_ms) == numbers
    assert all(process.tolist() == [0] * (COUNTER_CELLS - 1) + [-1] for process in ring.counters)
    assert all(cells.tolist() == [0.5, *[0] * (MEASURE_CELLS - 2), 1.5] for cells in ring.measures)
    assert (ring.slots[0].signature, ring.slots[254].signature) == (b"first", b"last")
    ring.close()


def test_first_is_the_lowest(ring: Ring) -> None:
    lead(ring, 0, DONE)
    lead(ring, 2, DONE)

    assert ring.first(FREE) == 1
    assert ring.first(DONE) == 0
    assert ring.first(RUNNING) is None


def test_slots_that_are_not_in_use_are_not_filled_and_what_is_in_them_is_still_seen(ring: Ring) -> None:
    lead(ring, 3, READY, worker=1)
    lead(ring, 0, DONE)
    ring.set_serving(1, True)
    ring.most_slots = 2

    assert ring.first(FREE) == 1
    lead(ring, 1, FILLING)
    assert ring.first(FREE) is None
    assert (ring.every(READY), ring.least_loaded()) == ([3], (1, 1))
    ring.most_slots = 4
    assert ring.first(FREE) == 2


def test_every_is_oldest_first(ring: Ring) -> None:
    lead(ring, 0, READY, sequence=30)
    lead(ring, 1, RUNNING, sequence=10)
    lead(ring, 2, READY, sequence=20)

    assert ring.every(READY) == [2, 0]
    assert ring.every(READY, RUNNING) == [1, 2, 0]
    assert ring.every(DONE) == []
    assert ring.newest() == 30


def test_owned_are_the_slots_of_one_worker(ring: Ring) -> None:
    lead(ring, 0, READY, worker=1, sequence=3)
    lead(ring, 1, READY, worker=1, sequence=2)
    lead(ring, 2, READY, worker=2, sequence=1)
    lead(ring, 3, RUNNING, worker=1, sequence=4)

    assert ring.owned(1, READY) == [1, 0]
    assert ring.owned(1, RUNNING) == [3]
    assert ring.owned(0, READY) == []


def test_the_least_loaded_worker_is_one_that_serves(ring: Ring) -> None:
    ring.set_serving(1, True)
    ring.set_serving(2, True)
    lead(ring, 0, READY, worker=1)
    lead(ring, 1, RUNNING, worker=1)
    lead(ring, 2, RUNNING, worker=2)
    lead(ring, 3, DONE, worker=2)

    assert ring.least_loaded() == (2, 1)
    ring.set_serving(2, False)
    assert ring.least_loaded() == (1, 2)
    ring.set_serving(0, True)
    assert ring.least_loaded() == (0, 0)


def test_a_slot_of_a_dead_worker_goes_to_another_and_keeps_its_turn(ring: Ring) -> None:
    lead(ring, 0, RUNNING, worker=0, sequence=5)
    lead(ring, 1, READY, worker=1, sequence=6)

    ring.hand_over("supervisor", 0, 1)

    assert ring.owned(1, READY) == [0, 1]


def test_a_ready_slot_changes_its_owner_without_an_arrow(ring: Ring) -> None:
    lead(ring, 0, READY, worker=0, sequence=7)

    ring.hand_over("supervisor", 0, 2)

    assert ring.owned(2, READY) == [0]
    assert ring.newest() == 7


@pytest.mark.parametrize("state", [READY, RUNNING])
def test_the_time_of_a_worker_begins_when_it_is_given_the_slot(ring: Ring, state: State) -> None:
    lead(ring, 0, state, worker=0)
    given_s = ring.slots[0].handed_s

    ring.hand_over("supervisor", 0, 1)

    assert 0 < given_s < ring.slots[0].handed_s <= time.monotonic()


def test_nobody_is_given_a_slot_that_is_not_theirs_to_give(ring: Ring) -> None:
    lead(ring, 0, DONE)

    with pytest.raises(RingError, match="the reader cannot move slot 0 from DONE to READY"):
        ring.hand_over("reader", 0, 1, 9)


def test_two_processes_see_each_others_moves(ring: Ring) -> None:
    fd = os.dup(ring.fd)
    other = Ring(GEOMETRY, fd)

    lead(ring, 2, READY, worker=1, sequence=4)
    ring.slots[2].fill(b"layout", [Row(b"1-0", b"u", b"", 0, 0)], 1)
    ring.slots[2].inputs[:4] = b"data"
    ring.set_serving(1, True)
    ring.reader_wants = True
    ring.counters[3][5] = 123
    ring.measures[3][5] = 0.25
    other.move("worker", 2, RUNNING)

    assert ring.state(2) == RUNNING
    assert other.owned(1, RUNNING) == [2]
    assert other.least_loaded() == (1, 1)
    assert other.newest() == 4
    assert other.reader_wants
    assert other.counters[3][5] == 123
    assert other.measures[3][5] == 0.25
    assert (other.slots[2].signature, other.slots[2].rows) == (b"layout", 1)
    assert other.slots[2].table() == ring.slots[2].table()
    assert bytes(other.slots[2].inputs[:4]) == b"data"
    other.close()


def test_every_process_has_its_own_counters(ring: Ring) -> None:
    for process, counters in enumerate(ring.counters):
        for count in range(COUNTER_CELLS):
            counters[count] = process * COUNTER_CELLS + count

    assert [list(counters) for counters in ring.counters] == [
        list(range(first, first + COUNTER_CELLS)) for first in range(0, 5 * COUNTER_CELLS, COUNTER_CELLS)
    ]


class Owners:
    """The owners of slots, and somebody who acts as soon as one is told."""

    def __init__(self, owners: memoryview, act: Callable[[], None]) -> None:
        self._owners = owners
        self._act = act

    def __getitem__(self, slot: int) -> int:
        return self._owners[slot]

    def __setitem__(self, slot: int, worker: int) -> None:
        self._owners[slot] = worker
        self._act()


@pytest.mark.parametrize("steps", [[RUNNING], [RUNNING, DONE]])
def test_a_slot_may_be_taken_the_moment_its_new_owner_is_told(
    ring: Ring, steps: list[State], monkeypatch: pytest.MonkeyPatch
) -> None:
    lead(ring, 0, READY, 0)

    def run() -> None:
        for step in steps:
            ring.move("worker", 0, step)

    monkeypatch.setattr(ring, "_owners", Owners(vars(ring)["_owners"], run))

    ring.hand_over("supervisor", 0, 1)

    assert ring.state(0) == steps[-1]
    assert ring.owned(1, steps[-1]) == [0]


def test_nothing_is_left_of_a_ring_that_cannot_be_mapped() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = _lowest_free()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, hard))  # one for the segment, none for its mapping
    try:
        with pytest.raises(OSError, match="Too many open files"):
            Ring(GEOMETRY)
        left = _lowest_free()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert left == lowest


@pytest.mark.parametrize("batch", [10**12, 10**14, 10**18, 10**20])
def test_a_ring_beyond_all_memory_is_refused(batch: int) -> None:
    lowest = _lowest_free()

    with pytest.raises(OSError, match="Cannot allocate memory"):
        Ring(Geometry(slots=9, batch=batch, slot_bytes=4096, workers=2))

    assert _lowest_free() == lowest


def _lowest_free() -> int:
    descriptor = os.dup(0)
    os.close(descriptor)
    return descriptor
