"""Checks of an installation for `doctor`: a code, the function that judges the facts, and the finding for people.

    facts ──► Checks (one group, a function for each code) ──► Verdict ──► Finding, with code, group and subject

A part that stands beside the node brings an `Examiner` as an entry point of the group `cluster_serving.checks`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from cluster_serving.client.redis_settings import RedisSettings

F = TypeVar("F")

Status = Literal["skip", "ok", "warn", "fail"]
"""Result of a check. `skip`: the facts are not known, or there is no object to check."""

WORST: tuple[Status, ...] = ("skip", "ok", "warn", "fail")
"""Every status, the worst last."""


class Verdict(NamedTuple):
    """Judgement about a fact.

    Attributes:
        status: result of the check.
        message: the fact and its cost, for people.
        fix: remedy, for people. Empty: no remedy is needed.
        command: command line that applies the remedy, or shows more.
        amount: size of the fault in the unit of the check. A larger amount is worse, and ends a mute.
        evidence: measured values.
    """

    status: Status
    message: str
    fix: str = ""
    command: str = ""
    amount: float = 0.0
    evidence: Mapping[str, Any] = {}


class Finding(NamedTuple):
    """Verdict of a check about a subject. The code is stable, and documented in docs/reference/doctor.md."""

    code: str
    group: str
    subject: str
    verdict: Verdict
    muted: bool = False

    @property
    def status(self) -> Status:
        """Result of the check."""
        return self.verdict.status

    @property
    def is_problem(self) -> bool:
        """True for a warning or a failure."""
        return self.status in ("warn", "fail")


class Checks(Generic[F]):
    """Checks of one group. An instance decorates the functions that judge the facts of the group."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._judges: dict[str, Callable[[F], Verdict]] = {}

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes in the order of the definitions."""
        return tuple(self._judges)

    def __call__(self, code: str) -> Callable[[Callable[[F], Verdict]], Callable[[F], Verdict]]:
        """Return a decorator that adds a function as the judge of a code."""

        def add(judge: Callable[[F], Verdict]) -> Callable[[F], Verdict]:
            self._judges[code] = judge
            return judge

        return add

    def run(self, facts: F, subject: str) -> list[Finding]:
        """Return a finding for each code."""
        return [Finding(code, self.group, subject, judge(facts)) for code, judge in self._judges.items()]

    def skip(self, subject: str, reason: str) -> list[Finding]:
        """Return a finding for each code that says why the check was not made."""
        return [Finding(code, self.group, subject, Verdict("skip", reason)) for code in self._judges]


class Case(NamedTuple):
    """Object of an examination by a part beside the node.

    Attributes:
        config_path: config file of the job, or None.
        environ: environment variables of this process.
        stack_files: files of a stack to check. Empty: the stack that runs, if any.
        redis: Redis of the job. None: it is not known.
    """

    config_path: Path | None
    environ: Mapping[str, str]
    stack_files: tuple[Path, ...] = ()
    redis: RedisSettings | None = None


class Examiner(Protocol):
    """Checks that a part brings."""

    @property
    def codes(self) -> Sequence[str]:
        """Codes of the checks."""
        ...

    def examine(self, case: Case) -> list[Finding]:
        """Return the findings about a case. Nothing is changed."""
        ...


def worst(findings: Sequence[Finding]) -> Status:
    """Return the worst status of the findings that are not muted. Muted findings count as passed."""
    return WORST[max((WORST.index("ok" if each.muted else each.status) for each in findings), default=0)]
