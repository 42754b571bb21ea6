"""A change of what a node serves: other lanes are loaded beside those that serve, and take over when they can.

asked ──► loading ──► serving: the old lanes drain ──► done
             └── failed, or too late: the new lanes are given up, the old ones have never noticed
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.config.loading import Config
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.supervisor.generation import Generation

log = structlog.get_logger(__name__)


class Report(Protocol):
    """Told how a start or a change goes."""

    def __call__(self, event: str, text: str, code: int = 0) -> None:
        """An event (`progress`, `ready` or `failed`), a sentence, and for `failed` an exit code; 0: that of the process."""


@dataclass(frozen=True)
class Plan:
    """What a node is to serve from now on.

    `report` is told how it goes; `commit` is called once it serves, which may take `timeout_s` from `begun_s` (monotonic) on.
    """

    config: Config
    model: Detected
    report: Report
    commit: Callable[[], None]
    timeout_s: float
    begun_s: float


def refuse(report: Report, reason: str, code: int) -> None:
    """Tell that there will be no change, to the log and to who waits."""
    log.error("no change; the old model goes on serving", reason=reason)
    report("failed", f"{reason.removesuffix('.')}; the old model goes on serving", code)


class PlanSource(Protocol):
    """Where the supervisor learns what it is to change to."""

    def asked(self) -> bool:
        """Whether somebody waits for a change that he has described."""
        ...

    @property
    def fetching(self) -> bool:
        """Whether the model of the next plan is on its way: `next` is to be asked again."""
        ...

    def next(self) -> Plan | None:
        """What to change to; None while its model is fetched, and when it cannot be, which has been told to whom it concerns."""
        ...

    def give_up(self, reason: str) -> None:
        """There will be no change to what is fetched, and this is why."""


class Change:
    """A change under way."""

    def __init__(self, plan: Plan, lanes: Generation) -> None:
        self.plan = plan
        self.lanes = lanes
        self._deadline_s = plan.begun_s + plan.timeout_s
        lanes.start()

    @property
    def failure(self) -> tuple[str, int] | None:
        """Why it has failed, and the exit code that tells it; None while there is hope."""
        if self.lanes.failure is None and time.monotonic() > self._deadline_s:
            return f"not ready after {self.plan.timeout_s:g} s", ExitCode.FAILED
        return self.lanes.failure
