"""Faults of a run, planned from its seed. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from random import Random
from typing import Final

import msgspec


class Target(StrEnum):
    """Target of a fault."""

    READER = "reader"
    WORKER = "worker"
    WRITER = "writer"
    SUPERVISOR = "supervisor"
    NODE = "node"
    REDIS = "Redis"
    GROUP = "consumer group"
    STREAM = "stream"


class Act(StrEnum):
    """Action on the target of a fault."""

    KILL = "kill"  # SIGKILL, and started again
    PAUSE = "pause"  # SIGSTOP for longer than the lease, then SIGCONT
    RESTART = "restart"  # SIGTERM, and started again
    DESTROY = "destroy"
    FAIL_OVER = "fail over"  # to a master whose clock is behind
    SET_CLOCK = "set clock"  # forward by an hour, and back
    FAR_ID = "far id"  # a client gives a record an id of the far future


CHILDREN: Final = (Target.READER, Target.WORKER, Target.WRITER)
KINDS: Final = (
    *(
        (target, act)
        for target in (*CHILDREN, Target.SUPERVISOR, Target.NODE, Target.REDIS)
        for act in (Act.KILL, Act.PAUSE, Act.RESTART)
    ),
    (Target.GROUP, Act.DESTROY),
    (Target.REDIS, Act.FAIL_OVER),
    (Target.NODE, Act.SET_CLOCK),
    (Target.STREAM, Act.FAR_ID),
)
"""Every kind of fault."""
_SPACING_S: Final = 60 / len(KINDS)

# When a writer dies while Redis does not answer, the results that it has published are unknown.
_MEANWHILE: Final[Mapping[Act, Target]] = {
    Act.PAUSE: Target.WRITER,
    Act.KILL: Target.READER,
    Act.RESTART: Target.WORKER,
}
_TOLD: Final[Mapping[Act, str]] = {
    Act.DESTROY: "the consumer group destroyed",
    Act.FAIL_OVER: "Redis failed over to a clock that is behind",
    Act.SET_CLOCK: "clock of node {} set forward by an hour and back",
    Act.FAR_ID: "a record with an id of the far future",
}


class Fault(msgspec.Struct, frozen=True):
    """Planned fault.

    Attributes:
        at_s: seconds after the start of the load.
        node: 0 or 1.
        meanwhile: child killed while Redis is away.
    """

    at_s: float
    target: Target
    act: Act
    node: int
    meanwhile: Target | None = None

    def describe(self) -> str:
        """Return a description for people."""
        if self.act in _TOLD:
            return _TOLD[self.act].format(self.node + 1)
        done = {Act.KILL: "killed", Act.PAUSE: "paused", Act.RESTART: "restarted"}[self.act]
        if self.target is Target.REDIS:
            return f"Redis {done}, a {self.meanwhile} of node {self.node + 1} killed meanwhile"
        whose = f"node {self.node + 1}" if self.target is Target.NODE else f"{self.target} of node {self.node + 1}"
        return f"{whose} {done}"


def plan(seed: int, seconds: float) -> list[Fault]:
    """Return the faults of a run by time, one each 2.6 s: every kind once in a random order, then every kind again.

    A run of 60 s or more has every kind.
    """
    rng = Random(f"faults {seed}")  # noqa: S311 - not for secrets
    count = max(1, round(seconds / _SPACING_S))
    kinds: list[tuple[Target, Act]] = []
    while len(kinds) < count:
        kinds += rng.sample(KINDS, len(KINDS))
    faults: list[Fault] = []
    for at, (target, act) in enumerate(kinds[:count]):
        meanwhile = _MEANWHILE.get(act) if target is Target.REDIS else None
        at_s = (at + rng.uniform(0.1, 0.9)) * seconds / count
        faults.append(Fault(round(at_s, 3), target, act, rng.randrange(2), meanwhile))
    return faults
