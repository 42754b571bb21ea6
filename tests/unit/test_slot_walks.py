"""Random walks over the real ring and slots: the processes of a lane take turns, and die between any two operations."""

import random
from collections.abc import Iterator

import pytest

from cluster_serving.node.ring.ring import HANDED_OVER, TRANSITIONS, Ring, State
from cluster_serving.node.ring.slot import Geometry, Outcome, Row

GEOMETRY = Geometry(slots=3, batch=4, slot_bytes=64, workers=2)
RECORDS = 40
POISON = 7
DIED = ("WorkerDied", "killed")
LATE = ("DeadlineExceeded", "too late")

Program = Iterator[None]


class Lane:
    """Programs over a real ring, which run up to their next `yield`; Redis is a set of what is pending and the results."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ring = Ring(GEOMETRY)
        self.unread = list(range(RECORDS))
        self.pending: set[int] = set()
        self.results: dict[int, bool] = {}
        self.taken: set[tuple[str, State, State]] = set()
        self.programs: dict[str, Program] = {"reader": self._reader(), "writer": self._writer()}
        for worker in range(GEOMETRY.workers):
            self.programs[f"worker {worker}"] = self._worker(worker)
            self.ring.set_serving(worker, True)

    def _move(self, by: str, slot: int, to: State) -> None:
        self.taken.add((by, self.ring.state(slot), to))
        self.ring.move(by, slot, to)

    def _hand_over(self, by: str, slot: int, worker: int, sequence: int | None = None) -> None:
        self.taken.add((by, self.ring.state(slot), State.READY))
        self.ring.hand_over(by, slot, worker, sequence)

    def _ids(self, *states: State) -> list[int]:
        """The records in the slots of these states."""
        slots = (self.ring.slots[slot] for slot in self.ring.every(*states))
        return [int(row.id) for slot in slots for row in slot.table()]

    def _reader(self) -> Program:
        ring, sequence = self.ring, self.ring.newest()
        for slot in ring.every(State.FILLING):
            self._move("reader", slot, State.FREE)
            yield
        held = self._ids(*HANDED_OVER)
        yield
        backlog = sorted(self.pending.difference(held))
        while True:
            yield
            free, least = ring.first(State.FREE), ring.least_loaded()
            if free is None or least is None or least[1] > 1:
                continue
            if not backlog:
                backlog, self.unread = self.unread[:6], self.unread[6:]
                self.pending.update(backlog)
                continue
            if self.random.random() < 0.2:
                sequence += 1
                yield from self._refuse(free, backlog.pop(0), sequence)
                continue
            count = self.random.randint(1, GEOMETRY.batch)
            rows, backlog = backlog[:count], backlog[count:]
            self._move("reader", free, State.FILLING)
            yield
            ring.slots[free].fill(b"", [Row(b"%d" % each, b"u", b"", 0, at) for at, each in enumerate(rows)], len(rows))
            yield
            sequence += 1
            self._hand_over("reader", free, least[0], sequence)

    def _refuse(self, slot: int, record: int, sequence: int) -> Program:
        self._move("reader", slot, State.FILLING)
        yield
        self.ring.slots[slot].fill(b"", [Row(b"%d" % record, b"u", b"", 0, -1, error=LATE)], 0)
        yield
        self.taken.add(("reader", State.FILLING, State.DONE))
        self.ring.answer(slot, sequence)

    def _worker(self, me: int) -> Program:
        ring = self.ring
        while True:
            yield
            number = ring.oldest(State.READY, me)
            if number is None:
                continue
            self._move("worker", number, State.RUNNING)
            slot = ring.slots[number]
            while rows := slot.progress.next_run:
                yield
                if POISON in [int(row.id) for row in slot.table() if row.place in rows]:
                    return
                room = self.random.randint(0 if slot.output_bytes else 1, len(rows))
                slot.add([Outcome(list(rows))], rows.start + room, slot.output_bytes + room)
                if room < len(rows):
                    break
            yield
            self._move("worker", number, State.DONE)

    def _writer(self) -> Program:
        for interrupted in self.ring.every(State.PUBLISHING):
            self._move("writer", interrupted, State.DONE)
            yield
        while True:
            yield
            number = self.ring.oldest(State.DONE)
            if number is None:
                continue
            self._move("writer", number, State.PUBLISHING)
            yield
            slot = self.ring.slots[number]
            failed = {row: outcome.error is not None for outcome in slot.outcomes() for row in outcome.rows} | {
                -1: True
            }
            for row in slot.table():
                if row.place < slot.progress.next_row and int(row.id) in self.pending:
                    self.pending.remove(int(row.id))
                    assert int(row.id) not in self.results, "a record has a second result"
                    self.results[int(row.id)] = failed[row.place]
            yield
            if slot.unfinished:
                slot.make_room()
                yield
                least = self.ring.least_loaded()
                self._hand_over("writer", number, least[0] if least else self.ring.owner(number))
                continue
            self._move("writer", number, State.FREE)

    def _bury(self, name: str) -> None:
        """Put the slots of a dead process into order, and start another one."""
        if name == "reader":
            self.programs[name] = self._reader()
        elif name == "writer":
            self.programs[name] = self._writer()
        else:
            worker = int(name.split()[1])
            self.ring.set_serving(worker, False)
            for slot in self.ring.owned(worker, State.RUNNING):
                self.ring.slots[slot].worker_died(DIED)
                self._hand_over("supervisor", slot, worker)
            for slot in self.ring.owned(worker, State.READY):
                least = self.ring.least_loaded()
                if least is not None:
                    self._hand_over("supervisor", slot, least[0])
            self.ring.set_serving(worker, True)
            self.programs[name] = self._worker(worker)

    def step(self, deadly: bool) -> None:
        """Let one process take its next step, or die before it."""
        name = self.random.choice(list(self.programs))
        dies = deadly and self.random.random() < 0.02
        if dies or next(self.programs[name], "dead") == "dead":
            self._bury(name)
        held = [record for record in self._ids(*HANDED_OVER) if record in self.pending]
        assert len(held) == len(set(held)), "a record that nobody has answered is in two slots"

    def close(self) -> None:
        """Give the ring back."""
        self.ring.close()


@pytest.mark.parametrize("seed", range(10))
def test_each_record_gets_one_result_and_each_slot_becomes_free(seed: int) -> None:
    lane = Lane(seed)

    for step in range(20_000):  # the last ones without deaths
        lane.step(deadly=step < 1500)
        if len(lane.results) == RECORDS and len(lane.ring.every(State.FREE)) == GEOMETRY.slots:
            break

    assert sorted(lane.results) == list(range(RECORDS))
    assert lane.results[POISON], "it kills its worker"
    assert len(lane.ring.every(State.FREE)) == GEOMETRY.slots
    assert not lane.pending
    lane.close()


def test_the_walks_take_every_arrow() -> None:
    taken: set[tuple[str, State, State]] = set()
    for seed in range(10):
        lane = Lane(seed)
        for _ in range(1500):
            lane.step(deadly=True)
        taken |= {arrow for arrow in lane.taken if arrow[1] != arrow[2]}
        lane.close()

    assert taken == {(by, *arrow) for by, arrows in TRANSITIONS.items() for arrow in arrows}
