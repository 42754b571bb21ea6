"""A small lane whose every interleaving can be tried: reader, two workers, writer, supervisor; three slots, a few records.

    Redis: unread --> pending --> finished          slots: the states and arrows of `ring.py` itself

Each method named in a process's place is one step: at most one store that another process can see, so that every process may
die, and every other one go on, between any two stores of the real code. A step returns where its process goes next, with its
local variables, or None while it waits. What is left out: sequence numbers (whoever takes the oldest slot here takes any), and
the reader's bell (without it the reader looks again when its patience ends).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from cluster_serving.node.reader.batcher import is_due
from cluster_serving.node.ring.ring import HANDED_OVER, TRANSITIONS, State
from support.exploration import Move, Violation
from support.slot_world import (
    DEAD,
    ERROR,
    FIRST_WORKER,
    GOOD,
    NONE,
    PROCESSES,
    READER,
    SUPERVISOR,
    WORKERS,
    WRITER,
    WRITER_BELL,
    Place,
    Seen,
    Slot,
    World,
)


class Lane:
    """The programs of a lane's processes, and what may happen to them.

    Args:
        records: how many there are, all in the stream from the beginning.
        poison: the one that kills its worker; negative: there is none.
        late: the one that the reader refuses; negative: there is none.
        batch: rows of a slot.
        slots: of the ring.
        troubles: how many deaths, cut connections and rivals that answer a record first may come, in any state.
        room: rows whose outputs have room in a slot.
    """

    unseen = frozenset(
        {
            "reader_frees",
            "worker_runs",
            "worker_forgives",
            "worker_goes_on",
            "writer_takes_back",
            "writer_empties",
            "supervisor_recovers",
        }
    )
    """Steps that change nothing that a living process looks at: the order of these and other processes' steps cannot matter."""

    forgets_owners = True
    """The owner of a slot that is neither READY nor RUNNING does not matter, and is not told apart."""

    def __init__(
        self,
        *,
        records: int = 2,
        poison: int = 1,
        late: int = -1,
        batch: int = 2,
        slots: int = 3,
        troubles: int = 1,
        room: int = 2,
    ) -> None:
        self._records, self._poison, self._batch, self._slots = records, poison, batch, slots
        self._late, self._troubles, self._room = late, troubles, room
        self._wanted, self._options = 0, 1
        self.taken: set[tuple[str, State, State]] = set()

    # What `explore` asks for.

    def first(self) -> Seen:
        """Everybody has just been started; nothing has been read."""
        return self._node(0, (False,) * self._records, 0)

    def moves(self, seen: Seen) -> Iterator[Move[Seen]]:
        """Every step of every process, and every trouble."""
        self._check(seen)
        unseen = [process for process, place in enumerate(seen.places) if place[0] in self.unseen]
        for process in unseen[:1] or range(len(PROCESSES)):
            if seen.places[process] != DEAD:
                yield from self._steps(seen, process, seen.places[process])
            if seen.troubles < self._troubles and process != SUPERVISOR and seen.places[process] != DEAD:
                yield self._killed(seen, process)
        if seen.troubles < self._troubles and not unseen:
            yield from self._other_troubles(seen)

    def is_goal(self, seen: Seen) -> bool:
        """Return whether each record has its result, and all slots are free."""
        return all(seen.finished) and all(slot.state == State.FREE for slot in seen.slots)

    def picture(self, seen: Seen) -> str:
        """The slots, and who sleeps although its bell rings or does not."""
        drawn = [_drawn(slot) for slot in seen.slots]
        finished = "".join("?+"[done] for done in seen.finished)
        return (
            f"{' '.join(drawn)} read {seen.read} finished {finished} bells {''.join('.!'[rung] for rung in seen.bells)}"
        )

    def _node(self, read: int, finished: tuple[bool, ...], troubles: int) -> Seen:
        places = (("reader_connects",), ("writer_sleeps",), ("supervisor_watches",))
        workers = tuple(("worker_sleeps", worker) for worker in WORKERS)
        bells, serving = (False,) * (len(WORKERS) + 1), (True,) * len(WORKERS)
        return Seen((Slot(),) * self._slots, (*places, *workers), bells, serving, (), read, finished, troubles)

    def _steps(self, seen: Seen, process: int, place: Place) -> Iterator[Move[Seen]]:
        self._wanted, options = 0, 1
        while self._wanted < options:
            self._options = 1
            world = World(seen)
            label = _label(process, place)
            try:
                goes = getattr(self, str(place[0]))(world, *place[1:])
                if goes is not None:
                    world.places[process] = goes
                    yield Move(label, world.seen(), False)
            except AssertionError as wrong:
                raise Violation(label, str(wrong)) from None
            options = self._options
            self._wanted += 1

    def _any(self, options: Sequence[int]) -> int:
        """One of these: every one is tried."""
        self._options = len(options)
        return options[self._wanted]

    def _move(self, world: World, by: str, slot: int, to: State) -> None:
        arrow = State(world.slots[slot].state), to
        assert arrow in TRANSITIONS[by], f"the {by} cannot move slot {slot} from {arrow[0].name} to {to.name}"
        self.taken.add((by, *arrow))
        world.set(slot, state=int(to))

    def _free(self, world: World, by: str, slot: int) -> None:
        self._move(world, by, slot, State.FREE)
        # What else is left in it is overwritten before anybody looks.
        world.slots[slot] = Slot(owner=world.slots[slot].owner)

    # What must be true in every state.

    def _check(self, seen: Seen) -> None:
        for process, (step, *local) in enumerate(seen.places):
            if step in _TOUCHING:
                must_be, at = _TOUCHING[str(step)]
                slot = seen.slots[int(str(local[at]))]
                if slot.state != must_be or (must_be == State.RUNNING and slot.owner != local[0]):
                    raise Violation("", f"the {PROCESSES[process]} works on a slot that somebody else may touch")
        held = [record for slot in seen.slots for record in slot.rows if not seen.finished[record]] + [*seen.backlog]
        if len(held) > len({*held}):
            raise Violation("", "a record that nobody has answered is in two places of one lane")

    # The reader: reader.py.

    def reader_frees(self, world: World) -> Place:
        """Begin by freeing what the reader before was filling."""
        for slot in world.within(State.FILLING):
            self._free(world, "reader", slot)
            return ("reader_frees",)
        return ("reader_wakes",)

    def reader_wakes(self, world: World) -> Place:
        """Ring for what the reader before had handed over and not rung for."""
        world.bells = [True] * len(world.bells)
        return ("reader_connects",)

    def reader_connects(self, world: World) -> Place:
        """Note what the lane works on, before asking Redis what is pending."""
        held = [record for slot in world.within(*HANDED_OVER, State.FILLING) for record in world.slots[slot].rows]
        return ("reader_takes_again", tuple(sorted({*held, *world.backlog})))

    def reader_takes_again(self, world: World, held: tuple[int, ...]) -> Place:
        """Take what is pending and not held."""
        pending = [record for record in range(world.read) if not world.finished[record]]
        return self.reader_receives(world, tuple(record for record in pending if record not in held))

    def reader_turns(self, world: World) -> Place | None:
        """Leave what is refused to the writer, decode, hand over, or ask for entries, whatever is possible first."""
        for slot in world.within(State.FILLING):
            if self._late in world.slots[slot].rows:
                self._move(world, "reader", slot, State.DONE)
                return ("reader_rings_writer",)
        if world.backlog and world.within(State.FREE):
            return self.reader_receives(world, ())
        least = world.least_loaded()
        filling = sorted(self._filling(world), key=lambda slot: -len(world.slots[slot].rows))
        if filling and least is not None:
            worker, load = least
            if is_due(len(world.slots[filling[0]].rows) == self._batch, load, 0, 0):
                return self.reader_chooses(world, filling[0], worker)
        if world.backlog or world.read == self._records or not world.within(State.FREE):
            return None
        count = self._any(range(1, min(self._batch, self._records - world.read) + 1))
        asked = tuple(range(world.read, world.read + count))
        world.read += count
        return ("reader_receives", asked)

    def reader_receives(self, world: World, entries: tuple[int, ...]) -> Place:
        """Decode the reply of Redis, as far as there is room; until it is here, it can be lost."""
        world.backlog = (*world.backlog, *entries)
        while world.backlog and self._place(world, world.backlog[0]):
            world.backlog = world.backlog[1:]
        return ("reader_turns",)

    def _filling(self, world: World) -> list[int]:
        filling = [slot for slot in world.within(State.FILLING) if world.slots[slot].rows]
        return [slot for slot in filling if self._late not in world.slots[slot].rows]

    def _place(self, world: World, record: int) -> bool:
        late = record == self._late
        open_slots = [slot for slot in self._filling(world) if len(world.slots[slot].rows) < self._batch and not late]
        free = world.within(State.FREE)
        if not open_slots and not free:
            return False
        if not open_slots:
            self._move(world, "reader", free[0], State.FILLING)
        slot = (open_slots or free)[0]
        held = world.slots[slot]
        rows = (*held.rows, record)
        world.set(slot, rows=rows, outcomes=(*held.outcomes, ERROR if late else NONE), next_row=late * len(rows))
        return True

    def reader_chooses(self, world: World, slot: int, worker: int) -> Place:
        """The first store of `Ring.hand_over`; the least loaded worker was looked up before it."""
        world.set(slot, owner=worker)
        return ("reader_hands_over", slot, worker)

    def reader_hands_over(self, world: World, slot: int, worker: int) -> Place:
        """The last store of `Ring.hand_over`."""
        self._move(world, "reader", slot, State.READY)
        return ("reader_rings", worker)

    def reader_rings(self, world: World, worker: int) -> Place:
        """Tell the worker."""
        world.bells[worker] = True
        return ("reader_turns",)

    def reader_rings_writer(self, world: World) -> Place:
        """Tell the writer."""
        world.bells[WRITER_BELL] = True
        return ("reader_turns",)

    # A worker: worker.py.

    def worker_looks(self, world: World, me: int) -> Place:
        """Take a slot; sleep when there is none."""
        ready = world.owned(me, State.READY)
        if not ready:
            return ("worker_sleeps", me)
        slot = self._any(ready)
        self._move(world, "worker", slot, State.RUNNING)
        return self.worker_turns(world, me, slot)

    def worker_turns(self, world: World, me: int, slot: int) -> Place:
        """Go on to a run if there is anything left to run, and room for an output; else to the end of the slot."""
        held = world.slots[slot]
        return ("worker_runs", me, slot) if held.run_rows and held.used < self._room else ("worker_ends", me, slot)

    def worker_sleeps(self, world: World, me: int) -> Place | None:
        """Wait for the bell."""
        if not world.bells[me]:
            return None
        world.bells[me] = False
        return self.worker_looks(world, me)

    def worker_runs(self, world: World, me: int, slot: int) -> Place:
        """Run the model on the next rows, and store what came of the first ones, as far as there is room."""
        held = world.slots[slot]
        if self._poison in held.rows[held.next_row : held.next_row + held.run_rows]:
            return DEAD
        count = min(held.run_rows, self._room - held.used)
        world.slots[slot] = held.with_outcomes(count, GOOD)._replace(used=held.used + count)
        return ("worker_forgives", me, slot, count)

    def worker_forgives(self, world: World, me: int, slot: int, count: int) -> Place:
        """The deaths of a row do not count for the next one."""
        world.set(slot, deaths_alone=0)
        return ("worker_goes_on", me, slot, count)

    def worker_goes_on(self, world: World, me: int, slot: int, count: int) -> Place:
        """The last store of `Slot.add`."""
        world.set(slot, next_row=world.slots[slot].next_row + count)
        return self.worker_turns(world, me, slot)

    def worker_ends(self, world: World, me: int, slot: int) -> Place:
        """Leave the slot to the writer."""
        self._move(world, "worker", slot, State.DONE)
        held = world.slots[slot]
        if held.next_row == len(held.rows):
            world.set(slot, most_rows=0, deaths_alone=0)  # nobody looks at these again
        if self.forgets_owners:
            world.set(slot, owner=0)
        return ("worker_rings", me)

    def worker_rings(self, world: World, me: int) -> Place:
        """Tell the writer."""
        world.bells[WRITER_BELL] = True
        return self._rests(world, me)

    def _rests(self, world: World, me: int) -> Place:
        return ("worker_looks", me) if world.owned(me, State.READY) else ("worker_sleeps", me)

    # The writer: writer.py, finish.lua.

    def writer_takes_back(self, world: World) -> Place:
        """Begin by publishing again what the writer before was publishing."""
        for slot in world.within(State.PUBLISHING):
            self._move(world, "writer", slot, State.DONE)
            return ("writer_takes_back",)
        return self.writer_wakes(world)

    def writer_wakes(self, world: World) -> Place:
        """Ring for what the writer before had given back and not rung for."""
        world.bells[:WRITER_BELL] = [True] * len(WORKERS)
        return self.writer_looks(world)

    def writer_looks(self, world: World) -> Place:
        """Take a slot; sleep when there is none."""
        done = world.within(State.DONE)
        if not done:
            return ("writer_sleeps",)
        slot = self._any(done)
        self._move(world, "writer", slot, State.PUBLISHING)
        return ("writer_finishes", slot)

    def writer_sleeps(self, world: World) -> Place | None:
        """Wait for the bell."""
        if not world.bells[WRITER_BELL]:
            return None
        world.bells[WRITER_BELL] = False
        return self.writer_looks(world)

    def writer_finishes(self, world: World, slot: int) -> Place:
        """Redis runs the script; the writer does not know it yet."""
        held = world.slots[slot]
        for row in range(held.published, held.next_row):
            self._publish(world, held.rows[row], held.outcomes[row])
        return ("writer_frees" if held.next_row == len(held.rows) else "writer_notes", slot)

    def writer_notes(self, world: World, slot: int) -> Place:
        """The first store of `Slot.make_room`."""
        world.set(slot, published=world.slots[slot].next_row)
        return ("writer_empties", slot)

    def writer_empties(self, world: World, slot: int) -> Place:
        """The other stores of `Slot.make_room`."""
        world.set(slot, outcomes=(NONE,) * len(world.slots[slot].rows), used=0)
        return ("writer_chooses", slot)

    def writer_chooses(self, world: World, slot: int) -> Place:
        """The first store of `Ring.hand_over`."""
        least = world.least_loaded()
        worker = least[0] if least else self._any(WORKERS)
        world.set(slot, owner=worker)
        return ("writer_hands_back", slot, worker)

    def writer_hands_back(self, world: World, slot: int, worker: int) -> Place:
        """The last store of `Ring.hand_over`."""
        self._move(world, "writer", slot, State.READY)
        return ("writer_rings", worker)

    def writer_rings(self, world: World, worker: int) -> Place:
        """Tell the worker."""
        world.bells[worker] = True
        return self._writer_rests(world)

    def _writer_rests(self, world: World) -> Place:
        return ("writer_looks",) if world.within(State.DONE) else ("writer_sleeps",)

    def writer_frees(self, world: World, slot: int) -> Place:
        """Redis has answered."""
        lost = [record for record in world.slots[slot].rows if not world.finished[record]]
        assert not lost, f"slot {slot} is freed, and Redis has not finished record {lost[0]}" if lost else ""
        self._free(world, "writer", slot)
        return self._writer_rests(world)

    def _publish(self, world: World, record: int, outcome: int) -> None:
        # Also of a record that is finished: a Redis that failed over may have forgotten that.
        assert outcome != NONE, f"record {record} is answered before it was run, or after its outputs were given up"
        if self._is_fenced(world, record):
            return
        assert not world.finished[record], f"record {record} has a second result"
        if record == self._poison:
            assert outcome == ERROR, "a record that kills its worker has a good result"
        elif outcome == ERROR and record != self._late:
            assert world.troubles > 1, f"record {record} is blamed for what its neighbour did"
        world.finished[record] = True

    def _is_fenced(self, world: World, record: int) -> bool:
        """XACK: somebody else has finished this record."""
        return world.finished[record]

    # The supervisor: lane.py. What it does between two stores that a living process can see is one step.

    def supervisor_watches(self, world: World) -> Place | None:
        """See that a worker died, or that a new one is ready."""
        dead = [worker for worker in WORKERS if world.places[FIRST_WORKER + worker] == DEAD]
        ready = [worker for worker in WORKERS if worker not in dead and not world.serving[worker]]
        if not dead and not ready:
            return None
        worker = self._any([*dead, *ready])
        world.serving[worker] = worker in ready
        return ("supervisor_watches",) if worker in ready else ("supervisor_recovers", worker)

    def supervisor_recovers(self, world: World, worker: int) -> Place:
        """Put back what a dead worker was running."""
        slots = tuple(world.owned(worker, State.READY))
        for slot in world.owned(worker, State.RUNNING):  # there is one at most
            world.slots[slot] = world.slots[slot].worker_died()
            self._move(world, "supervisor", slot, State.READY)
        return ("supervisor_gives", worker, slots) if slots else ("supervisor_rings", worker)

    def supervisor_gives(self, world: World, worker: int, slots: tuple[int, ...]) -> Place:
        """Give what was waiting for it to one that serves, or leave it for its successor."""
        least = world.least_loaded()
        if least is not None:
            world.set(slots[0], owner=least[0])
        return ("supervisor_gives", worker, slots[1:]) if slots[1:] else ("supervisor_rings", worker)

    def supervisor_rings(self, world: World, worker: int) -> Place:
        """Tell everybody: the dead one may have died before it rang. Then start another."""
        world.bells = [True] * len(world.bells)
        world.places[FIRST_WORKER + worker] = ("worker_looks", worker)
        return ("supervisor_watches",)

    # What comes from outside.

    def _killed(self, seen: Seen, process: int) -> Move[Seen]:
        world = World(seen)
        world.troubles += 1
        world.places[process] = {READER: ("reader_frees",), WRITER: ("writer_takes_back",)}.get(process, DEAD)
        if process == READER:
            world.backlog = ()  # the row tables that it had not written yet are lost with it, too
            for slot in world.within(State.FILLING):
                world.slots[slot] = Slot(State.FILLING)
        return Move(f"the {PROCESSES[process]} is killed", world.seen(), True)

    def _other_troubles(self, seen: Seen) -> Iterator[Move[Seen]]:
        # Its children die with it, and the ring with them; Redis goes on.
        yield Move("the supervisor is killed", self._node(seen.read, seen.finished, seen.troubles + 1), True)
        if seen.places[READER][0] == "reader_receives":
            world = World(seen)
            world.troubles += 1
            world.places[READER] = ("reader_connects",)
            yield Move("the reader's connection is cut", world.seen(), True)
        for record in range(seen.read):
            if not seen.finished[record]:
                world = World(seen)
                world.troubles += 1
                world.finished[record] = True
                yield Move(f"another node answers record {record}", world.seen(), True)


_TOUCHING = {
    **dict.fromkeys(("worker_runs", "worker_forgives", "worker_goes_on", "worker_ends"), (State.RUNNING, 1)),
    **dict.fromkeys(
        ("writer_finishes", "writer_frees", "writer_notes", "writer_empties", "writer_chooses", "writer_hands_back"),
        (State.PUBLISHING, 0),
    ),
    "reader_hands_over": (State.FILLING, 0),
}
"""The steps of a process that holds a slot: the state that the slot must be in, and which local variable names it."""


def _drawn(slot: Slot) -> str:
    return f"{State(slot.state).name:10}" + (f"w{slot.owner} {slot.rows}" if slot.rows else "").ljust(11)


@lru_cache(maxsize=4096)
def _label(process: int, place: Place) -> str:
    step, *local = place
    return f"{PROCESSES[process]}: {' '.join([str(step).split('_', 1)[1], *map(str, local)])}"
