"""Visits every state that a model can reach, and keeps the shortest way to each.

A model's processes are programs of small steps; which process takes the next one is open, and every order is tried. States
are tuples, so that a few hundred thousand of them are a matter of seconds.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Violation(Exception):
    """A step did what must never happen."""

    def __init__(self, label: str, what: str) -> None:
        super().__init__(what)
        self.label = label


class Move(NamedTuple, Generic[S]):
    """One step that is possible in a state, and where it leads."""

    label: str
    to: S
    is_trouble: bool


class Model(Protocol[S]):
    """Model that is explored."""

    def first(self) -> S:
        """The state that everything begins in."""
        ...

    def moves(self, state: S, /) -> Iterator[Move[S]]:
        """Every step that is possible in a state, tried one after the other.

        Raises:
            Violation: the step that is tried must never happen.
        """
        ...

    def is_goal(self, state: S, /) -> bool:
        """Return whether all work is done in a state."""
        ...

    def picture(self, state: S, /) -> str:
        """A state in one line."""
        ...


class Found(NamedTuple):
    """Result of an exploration: the number of states and of steps, and the way to the first thing that is wrong."""

    states: int
    steps: int
    wrong: str = ""


def explore(model: Model[S]) -> Found:
    """Visit every reachable state, breadth first.

    Wrong is a `Violation`, and a state from which no way leads to the goal although no further trouble comes.
    """
    return _Exploration(model).run()


class _Exploration(Generic[S]):
    def __init__(self, model: Model[S]) -> None:
        self._model = model
        first = model.first()
        self._states = [first]
        self._numbers = {first: 0}
        self._came: list[tuple[int, str]] = [(0, "")]
        self._before: list[list[int]] = [[]]  # without trouble: that may come, but nothing may count on it
        self._steps = 0

    def run(self) -> Found:
        at = 0
        while at < len(self._states):
            try:
                for move in self._model.moves(self._states[at]):
                    self._reach(at, move)
            except Violation as violation:
                return self._found(f"{violation}\n{self._way(at)}\n  {violation.label:34} <- here")
            at += 1
        stuck = self._stuck()
        if stuck is None:
            return self._found("")
        return self._found(f"from here no way leads to the end of the work\n{self._way(stuck)}")

    def _reach(self, at: int, move: Move[S]) -> None:
        self._steps += 1
        number = self._numbers.setdefault(move.to, len(self._states))
        if number == len(self._states):
            self._states.append(move.to)
            self._came.append((at, move.label))
            self._before.append([])
        if not move.is_trouble:
            self._before[number].append(at)

    def _stuck(self) -> int | None:
        """The first state from which the goal cannot be reached."""
        ahead = [number for number, state in enumerate(self._states) if self._model.is_goal(state)]
        leads = bytearray(len(self._states))
        for number in ahead:
            leads[number] = 1
        while ahead:
            for before in self._before[ahead.pop()]:
                if not leads[before]:
                    leads[before] = 1
                    ahead.append(before)
        stuck = leads.find(0)
        return None if stuck < 0 else stuck

    def _way(self, number: int) -> str:
        lines: list[str] = []
        while number:
            before, label = self._came[number]
            lines.append(f"  {label:34} {self._model.picture(self._states[number])}")
            number = before
        return "\n".join(reversed(lines))

    def _found(self, wrong: str) -> Found:
        return Found(len(self._states), self._steps, wrong)
