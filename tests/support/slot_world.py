"""The state of a small lane as one tuple: slots, where each process is in its program, bells, and what Redis knows."""

from typing import NamedTuple

from cluster_serving.node.ring.ring import State

NONE, GOOD, ERROR = range(3)  # what came of a row
READER, WRITER, SUPERVISOR, FIRST_WORKER = range(4)
WORKERS = (0, 1)
PROCESSES = ("reader", "writer", "supervisor", "worker 0", "worker 1")
WRITER_BELL = len(WORKERS)
DEAD = ("dead",)
"""A worker that died, and whose slots have not been put into order. Who is started again is where a new process begins: one that is
not there yet is one that has not taken its first step."""

Place = tuple[str | int | tuple[int, ...], ...]
"""Place of a process in its program: its next step, and its local variables."""


class Slot(NamedTuple):
    """One slot, as `ring.py` and `slot.py` describe it."""

    state: int = State.FREE
    owner: int = 0
    rows: tuple[int, ...] = ()
    next_row: int = 0
    most_rows: int = 0
    deaths_alone: int = 0
    outcomes: tuple[int, ...] = ()
    published: int = 0
    used: int = 0  # rows whose outputs lie in it

    @property
    def run_rows(self) -> int:
        """Number of rows that the next run takes."""
        left = len(self.rows) - self.next_row
        return min(self.most_rows or left, left)

    def with_outcomes(self, count: int, outcome: int) -> "Slot":
        """The next rows have an outcome, and `next_row` does not say so yet."""
        end = self.next_row + count
        return self._replace(outcomes=(*self.outcomes[: self.next_row], *[outcome] * count, *self.outcomes[end:]))

    def worker_died(self) -> "Slot":
        """Halve the runs; a row that was alone twice gets the error."""
        running = self.run_rows
        if running > 1:
            return self._replace(most_rows=running // 2, deaths_alone=0)
        if running == 1 and self.deaths_alone == 1:
            blamed = self.with_outcomes(1, ERROR)
            return blamed._replace(next_row=self.next_row + 1, most_rows=0, deaths_alone=0)
        return self._replace(deaths_alone=running)  # with nothing left to run it never counts


class Seen(NamedTuple):
    """A state of everything."""

    slots: tuple[Slot, ...]
    places: tuple[Place, ...]  # of PROCESSES
    bells: tuple[bool, ...]  # of the workers, and of the writer
    serving: tuple[bool, ...]
    backlog: tuple[int, ...]
    read: int  # records lower than this have been read
    finished: tuple[bool, ...]
    troubles: int  # that have come


class World:
    """A state of everything, while one step changes it."""

    def __init__(self, seen: Seen) -> None:
        slots, places, bells, serving, self.backlog, self.read, finished, self.troubles = seen
        self.slots, self.places, self.finished = list(slots), list(places), list(finished)
        self.bells, self.serving = list(bells), list(serving)

    def seen(self) -> Seen:
        """The state, to be compared with others."""
        slots, places, bells, serving = tuple(self.slots), tuple(self.places), tuple(self.bells), tuple(self.serving)
        return Seen(slots, places, bells, serving, self.backlog, self.read, tuple(self.finished), self.troubles)

    def within(self, *states: int) -> list[int]:
        """The slots in these states."""
        return [number for number, slot in enumerate(self.slots) if slot.state in states]

    def owned(self, worker: int, state: int) -> list[int]:
        """The slots of one worker in this state."""
        return [number for number, slot in enumerate(self.slots) if slot.state == state and slot.owner == worker]

    def set(self, slot: int, **values: object) -> None:
        """Store into a slot's header."""
        self.slots[slot] = self.slots[slot]._replace(**values)  # type: ignore[arg-type]

    def least_loaded(self) -> tuple[int, int] | None:
        """The serving worker with the fewest slots, and how many these are."""
        busy = [slot.owner for slot in self.slots if slot.state in (State.READY, State.RUNNING)]
        loads = [(busy.count(worker), worker) for worker in WORKERS if self.serving[worker]]
        if not loads:
            return None
        load, worker = min(loads)
        return worker, load
