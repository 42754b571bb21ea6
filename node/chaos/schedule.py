"""Faults of a run, planned from its seed. Pure."""

from enum import StrEnum
from random import Random
from typing import Final

import msgspec

_SPACING_S = 3.0


class Target(StrEnum):
    """Target of a fault."""

    READER = "reader"
    WORKER = "worker"
    WRITER = "writer"
    SUPERVISOR = "supervisor"
    NODE = "node"
    REDIS = "Redis"
    GROUP = "consumer group"


class Act(StrEnum):
    """Action on the target of a fault."""

    KILL = "kill"  # SIGKILL, and started again
    PAUSE = "pause"  # SIGSTOP for longer than the lease, then SIGCONT
    RESTART = "restart"  # SIGTERM, and started again
    DESTROY = "destroy"


CHILDREN: Final = (Target.READER, Target.WORKER, Target.WRITER)
KINDS: Final = (
    *((target, act) for target in Target if target is not Target.GROUP for act in Act if act is not Act.DESTROY),
    (Target.GROUP, Act.DESTROY),
)
"""Every kind of fault."""

# When a writer dies while Redis does not answer, the results that it has published are unknown.
_MEANWHILE = {Act.PAUSE: Target.WRITER, Act.KILL: Target.READER, Act.RESTART: Target.WORKER}


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
        if self.target is Target.GROUP:
            return "the consumer group destroyed"
        done = {Act.KILL: "killed", Act.PAUSE: "paused", Act.RESTART: "restarted"}[self.act]
        if self.target is Target.REDIS:
            return f"Redis {done}, a {self.meanwhile} of node {self.node + 1} killed meanwhile"
        whose = f"node {self.node + 1}" if self.target is Target.NODE else f"{self.target} of node {self.node + 1}"
        return f"{whose} {done}"


def plan(seed: int, seconds: float) -> list[Fault]:
    """Return the faults of a run by time, one each 3 s: every kind once in a random order, then every kind again.

    A run of 60 s or more has every kind.
    """
    rng = Random(f"faults {seed}")  # noqa: S311 - not for secrets
    count = max(1, round(seconds / _SPACING_S))
    kinds: list[tuple[Target, Act]] = []
    while len(kinds) < count:
        kinds += rng.sample(KINDS, len(KINDS))
    faults: list[Fault] = []
    for at, (target, act) in enumerate(kinds[:count]):
        meanwhile = _MEANWHILE[act] if target is Target.REDIS else None
        at_s = (at + rng.uniform(0.1, 0.9)) * seconds / count
        faults.append(Fault(round(at_s, 3), target, act, rng.randrange(2), meanwhile))
    return faults
