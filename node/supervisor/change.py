"""Change of the model or configuration of a node (hot swap): new lanes load beside the old lanes, and take over when ready.

asked ──► loading ──► serving: the old lanes drain ──► done
             └── failed, or too late: the new lanes are given up, the old lanes go on serving
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
    """Receiver of the progress of a start or a change."""

    def __call__(self, event: str, text: str, code: int = 0) -> None:
        """Report an event (`progress`, `ready` or `failed`) in a sentence.

        `failed` comes with an exit code. A `code` of 0 stands for the exit code of the process.
        """


@dataclass(frozen=True)
class Plan:
    """Model and configuration that a node is to serve from now on.

    `report` receives the progress. `commit` is called once the new lanes serve. The new lanes must serve within `timeout_s` from
    `begun_s` (monotonic) on.
    """

    config: Config
    model: Detected
    report: Report
    commit: Callable[[], None]
    timeout_s: float
    begun_s: float


def refuse(report: Report, reason: str, code: int) -> None:
    """Report to the log and to the waiting command that there will be no change."""
    log.error("no change; the old model goes on serving", reason=reason)
    report("failed", f"{reason.removesuffix('.')}; the old model goes on serving", code)


class PlanSource(Protocol):
    """Source of the plans that the supervisor changes to."""

    def asked(self) -> bool:
        """Return whether a command waits for a change that the command has described."""
        ...

    @property
    def fetching(self) -> bool:
        """True while the model of the next plan is being fetched. The supervisor then calls `next` again."""
        ...

    def next(self) -> Plan | None:
        """Return the next plan, or None while its model is being fetched.

        None is also the result of an impossible change. The failure has then been reported already.
        """
        ...

    def give_up(self, reason: str) -> None:
        """Give up the plan whose model is being fetched, for the given reason."""


class Change:
    """Change in progress."""

    def __init__(self, plan: Plan, lanes: Generation) -> None:
        self.plan = plan
        self.lanes = lanes
        self._deadline_s = plan.begun_s + plan.timeout_s
        lanes.start()

    @property
    def failure(self) -> tuple[str, int] | None:
        """Reason and exit code of a failed change, or None while the change can still succeed."""
        if self.lanes.failure is None and time.monotonic() > self._deadline_s:
            return f"not ready after {self.plan.timeout_s:g} s", ExitCode.FAILED
        return self.lanes.failure
