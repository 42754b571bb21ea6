"""Decision about the number of tasks of a service."""

from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """Reason of a decision, for metrics."""

    LOAD = "load"
    MIN = "min"
    MAX = "max"
    STARTING = "starting"
    WINDOW = "window"
    DOWN = "down"
    HELD = "held"


class Decision(NamedTuple):
    """Number of tasks to run, and why. `wanted` is None while the number is left alone for want of facts."""

    wanted: int | None
    reason: Reason
    words: str


def held(why: str) -> Decision:
    """Return the decision to leave the number alone."""
    return Decision(None, Reason.HELD, f"left alone: {why}")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
