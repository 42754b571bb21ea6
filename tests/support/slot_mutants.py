"""Lanes with one thing wrong each: what `slot_model.py` must find."""

# ruff: noqa: D102 - the class says what its one step does wrong

from collections.abc import Callable

from cluster_serving.node.ring.ring import HANDED_OVER, State
from support.slot_model import Lane
from support.slot_world import ERROR, FIRST_WORKER, GOOD, WORKERS, WRITER_BELL, Place, World

POISON = {"poison": 1, "troubles": 0}
TROUBLE = {"poison": -1}
LATE = {"poison": -1, "late": 1}
NARROW = {"poison": -1, "room": 1}

MUTANTS: list[tuple[type[Lane], dict[str, int]]] = []
"""Each mutant, with the arguments of a small lane in which it does wrong."""


def found_with(arguments: dict[str, int]) -> Callable[[type[Lane]], type[Lane]]:
    """Add the mutant to `MUTANTS`."""

    def add(mutant: type[Lane]) -> type[Lane]:
        MUTANTS.append((mutant, arguments))
        return mutant

    return add


@found_with(POISON)
class FreesBeforeRedisAnswered(Lane):
    """The writer frees a slot, and publishes what it remembers of it."""

    def writer_looks(self, world: World) -> Place:
        place = super().writer_looks(world)
        return ("writer_frees", place[1]) if place[0] == "writer_finishes" else place


@found_with(LATE)
class NoFence(Lane):
    """`finish.lua` writes a result although the record was finished before."""

    def _is_fenced(self, world: World, record: int) -> bool:
        return False


@found_with(NARROW)
class NextRowFirst(Lane):
    """`Slot.add` stores `next_row` before the outcomes."""

    def worker_runs(self, world: World, me: int, slot: int) -> Place:
        held = world.slots[slot]
        if self._poison in held.rows[held.next_row : held.next_row + held.run_rows]:
            return super().worker_runs(world, me, slot)
        count = held.run_rows
        world.set(slot, next_row=held.next_row + count)
        return ("worker_goes_on", me, slot, count)

    def worker_goes_on(self, world: World, me: int, slot: int, count: int) -> Place:
        held = world.slots[slot]
        earlier = held._replace(next_row=held.next_row - count).with_outcomes(count, GOOD)
        world.set(slot, outcomes=earlier.outcomes)
        return self.worker_turns(world, me, slot)


@found_with(NARROW)
class LeavesTheRest(Lane):
    """The writer frees a slot whose outputs had no room for all rows."""

    def writer_finishes(self, world: World, slot: int) -> Place:
        return ("writer_frees", super().writer_finishes(world, slot)[1])


@found_with(NARROW)
class ForgetsThePublished(Lane):
    """The writer gives a slot back without a note of the rows that it has published."""

    def writer_notes(self, world: World, slot: int) -> Place:
        return ("writer_empties", slot)


@found_with(NARROW)
class EmptiesBeforeItNotes(Lane):
    """The writer gives up the outputs of rows before it notes that these rows are published."""

    def writer_notes(self, world: World, slot: int) -> Place:
        super().writer_empties(world, slot)
        return ("writer_empties", slot)

    def writer_empties(self, world: World, slot: int) -> Place:
        super().writer_notes(world, slot)
        return ("writer_chooses", slot)


@found_with(NARROW)
class HandsBackBeforeItEmpties(Lane):
    """The writer gives up the outputs of a slot that the worker has already got back."""

    def writer_notes(self, world: World, slot: int) -> Place:
        super().writer_notes(world, slot)
        return ("writer_chooses", slot)

    def writer_hands_back(self, world: World, slot: int, worker: int) -> Place:
        super().writer_hands_back(world, slot, worker)
        return ("writer_empties", slot)


@found_with(TROUBLE)
class HandsBackInSilence(Lane):
    """The writer does not ring for what it gives back."""

    def writer_hands_back(self, world: World, slot: int, worker: int) -> Place:
        super().writer_hands_back(world, slot, worker)
        return self._writer_rests(world)


@found_with(NARROW)
class WakesNoWorker(Lane):
    """A new writer does not ring for what the old one had given back."""

    def writer_wakes(self, world: World) -> Place:
        return self.writer_looks(world)


@found_with(TROUBLE)
class ForgetsReadySlots(Lane):
    """A new reader does not look into the READY slots before it takes again what is pending."""

    def reader_connects(self, world: World) -> Place:
        others = [state for state in HANDED_OVER if state != State.READY]
        held = [record for slot in world.within(*others, State.FILLING) for record in world.slots[slot].rows]
        return ("reader_takes_again", tuple(held))


@found_with(LATE)
class TakesNothingAgain(Lane):
    """A new reader does not ask what is pending."""

    def reader_takes_again(self, world: World, held: tuple[int, ...]) -> Place:
        return ("reader_turns",)


@found_with(LATE)
class FreesNothing(Lane):
    """A new reader leaves what the old one was filling."""

    def reader_frees(self, world: World) -> Place:
        return self.reader_wakes(world)


@found_with(LATE)
class WakesNobody(Lane):
    """A new reader does not ring for what the old one handed over."""

    def reader_wakes(self, world: World) -> Place:
        return ("reader_connects",)


@found_with(LATE)
class WakesNoWriter(Lane):
    """A new reader does not ring for what the old one had left to the writer."""

    def reader_wakes(self, world: World) -> Place:
        world.bells[:WRITER_BELL] = [True] * len(WORKERS)
        return ("reader_connects",)


@found_with(POISON)
class ReaderRingsFirst(Lane):
    """The reader rings before the slot is READY."""

    def reader_chooses(self, world: World, slot: int, worker: int) -> Place:
        world.bells[worker] = True
        return super().reader_chooses(world, slot, worker)

    def reader_rings(self, world: World, worker: int) -> Place:
        return ("reader_turns",)


@found_with(POISON)
class ReadyBeforeOwner(Lane):
    """`Ring.hand_over` stores the state before the owner."""

    def reader_chooses(self, world: World, slot: int, worker: int) -> Place:
        self._move(world, "reader", slot, State.READY)
        return ("reader_names_owner", slot, worker)

    def reader_names_owner(self, world: World, slot: int, worker: int) -> Place:
        world.set(slot, owner=worker)
        return ("reader_rings", worker)


@found_with(POISON)
class WorkerRingsFirst(Lane):
    """A worker rings before the slot is DONE."""

    def worker_turns(self, world: World, me: int, slot: int) -> Place:
        place = super().worker_turns(world, me, slot)
        return ("worker_rings", me, slot) if place[0] == "worker_ends" else place

    def worker_rings(self, world: World, me: int, slot: int = -1) -> Place:
        world.bells[WRITER_BELL] = True
        return ("worker_ends", me, slot)

    def worker_ends(self, world: World, me: int, slot: int) -> Place:
        super().worker_ends(world, me, slot)
        return self._rests(world, me)


@found_with(LATE)
class LeavesPublishing(Lane):
    """A new writer does not take back what the old one was publishing."""

    def writer_takes_back(self, world: World) -> Place:
        return self.writer_looks(world)


@found_with(LATE)
class RingsNobody(Lane):
    """The supervisor gives a dead worker's slots away and does not ring."""

    def supervisor_rings(self, world: World, worker: int) -> Place:
        bells = list(world.bells)
        place = super().supervisor_rings(world, worker)
        world.bells = bells
        return place


@found_with(LATE)
class DoesNotRingTheWriter(Lane):
    """The supervisor rings the workers alone: the dead one may have died between DONE and its ring."""

    def supervisor_rings(self, world: World, worker: int) -> Place:
        rung = world.bells[WRITER_BELL]
        place = super().supervisor_rings(world, worker)
        world.bells[WRITER_BELL] = rung
        return place


@found_with(TROUBLE)
class LooksAfterGiving(Lane):
    """The supervisor stores the new owner, and then looks whether the slot must be made READY: its new owner may run it by then."""

    def supervisor_gives(self, world: World, worker: int, slots: tuple[int, ...]) -> Place:
        super().supervisor_gives(world, worker, slots)
        return ("supervisor_makes_ready", worker, slots)

    def supervisor_makes_ready(self, world: World, worker: int, slots: tuple[int, ...]) -> Place:
        if world.slots[slots[0]].state != State.READY:
            self._move(world, "supervisor", slots[0], State.READY)
        return ("supervisor_gives", worker, slots[1:]) if slots[1:] else ("supervisor_rings", worker)


@found_with(POISON)
class RecoversTheLiving(Lane):
    """The supervisor puts into order the slots of a worker that is not dead yet."""

    def supervisor_watches(self, world: World) -> Place | None:
        for worker in WORKERS:
            if world.places[FIRST_WORKER + worker][0] == "worker_ends":
                world.serving[worker] = False
                return ("supervisor_recovers", worker)
        return super().supervisor_watches(world)


@found_with(POISON)
class BlamesTheBatch(Lane):
    """A worker's death is put down to all rows of its run."""

    def supervisor_recovers(self, world: World, worker: int) -> Place:
        for slot in world.owned(worker, State.RUNNING):
            held = world.slots[slot]
            world.slots[slot] = held._replace(outcomes=(ERROR,) * len(held.rows), next_row=len(held.rows))
        return super().supervisor_recovers(world, worker)


@found_with(POISON)
class NeverBlames(Lane):
    """A record that kills its worker is run again for ever."""

    def supervisor_recovers(self, world: World, worker: int) -> Place:
        for slot in world.owned(worker, State.RUNNING):
            world.set(slot, deaths_alone=0)
        return super().supervisor_recovers(world, worker)


@found_with(NARROW)
class StaleLook(Lane):
    """A worker looks at all states, then at the owners, and does not look at the state again before it moves the slot."""

    forgets_owners = False

    def worker_looks(self, world: World, me: int) -> Place:
        ready = world.within(State.READY)
        return ("worker_looks_at_owners", me, tuple(ready)) if ready else ("worker_sleeps", me)

    def worker_looks_at_owners(self, world: World, me: int, ready: tuple[int, ...]) -> Place:
        mine = [slot for slot in ready if world.slots[slot].owner == me]
        if not mine:
            return ("worker_sleeps", me)
        slot = self._any(mine)
        self._move(world, "worker", slot, State.RUNNING)
        return ("worker_runs", me, slot)
