"""Change of the model or configuration of a node (hot swap): new lanes load beside the old lanes, and take over when ready.

    restart --model-path NEW           node
    lifecycle/restart.py               lifecycle/changes.py                  supervisor.py
    ─────────────────────────          ─────────────────────────             ──────────────────────────────────────────
    ChangeRequest, SIGHUP ───────────────────────────────────────────────►   requested, until the node is ready and the
                                                                             old lanes of an earlier change have ended
                                       settings are read, a model     ◄───   fetching
    progress ◄──────────────────────   with a URL is fetched
                                       Change                         ───►   loading: new lanes beside the old lanes
    progress ◄────────────────────────────────────────────────────────────     │
                                                                               ▼
                                       settings are remembered        ◄───   serving: all new lanes serve
                                                                               │
                                                                               ▼
    ready ◄────────────────────────────────────────────────────────────────  the readers of the old lanes have ended
                                                                               │
                                                                               ▼
                                                                             the old lanes have drained, end, and are closed

A failure before `serving`, or no end within the timeout, refuses the change: the new lanes are given up, the old lanes go on
serving, and `restart` shows the reason. A SIGHUP without a request repeats the last request, and thereby reads the config file
again. A different share of the machine may need new lanes: a change to the same model, from `loading` on.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.config.loading import Config
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.supervisor.generation import Generation

log = structlog.get_logger(__name__)

STOPPED = "the node was told to stop"


class Report(Protocol):
    """Receiver of the progress of a start or a change."""

    def __call__(self, event: str, text: str, code: int = 0) -> None:
        """Report an event (`progress`, `warning`, `ready` or `failed`) in a sentence.

        `failed` comes with an exit code. A `code` of 0 stands for the exit code of the process.
        """


@dataclass
class Change:
    """Change to a model and configuration.

    `report` receives the progress. `commit` is called once the new lanes serve. The new lanes must serve within `timeout_s` from
    `begun_s` (monotonic) on.
    """

    config: Config
    model: Detected
    report: Report
    commit: Callable[[], None]
    timeout_s: float
    begun_s: float = field(default_factory=time.monotonic)
    lanes: Generation = field(init=False)
    """New lanes, from `loading` on."""

    @property
    def failure(self) -> tuple[str, int] | None:
        """Reason and exit code of a failed change, or None while the change can still succeed."""
        if self.lanes.failure is None and time.monotonic() > self.begun_s + self.timeout_s:
            return f"not ready after {self.timeout_s:g} s", ExitCode.FAILED
        return self.lanes.failure


def refuse(report: Report, reason: str, code: int) -> None:
    """Report to the log and to the waiting command that there will be no change."""
    log.error("no change; the old model goes on serving", reason=reason)
    report("failed", f"{reason.removesuffix('.')}; the old model goes on serving", code)


class ChangeSource(Protocol):
    """Source of the changes of a node."""

    def requested(self) -> bool:
        """Return whether a command waits for a change that the command has requested."""
        ...

    @property
    def fetching(self) -> bool:
        """True while the model of the next change is being fetched. The supervisor then calls `next` again."""
        ...

    def next(self) -> Change | None:
        """Return the next change, or None while its model is being fetched.

        None is also the result of an impossible change, which has been refused already.
        """
        ...

    def give_up(self) -> None:
        """Give up the change whose model is being fetched, if any, because the node stops."""
