"""Succession in a seat of a lane: the consequences of a child's end, decided by the first row that fits.

    child that has ended                                      successor       log     start or change
    ────────────────────────────────────────────────────────  ──────────────  ──────  ───────────────
    dismissed: no successor is wanted                         none
    recycled: ready, told to leave for its memory, exit 0     at once
    a worker in the middle of a run                           at once         died
    not ready, in a lane that has never served                after backoff   died    fails
    any other                                                 after backoff   died

After an interrupted run the successor starts at once, because the neighbours of the record at fault wait until the batch has been
halved down to the record.
"""

from enum import Enum
from typing import NamedTuple

from cluster_serving.client.servers.process.exit_codes import ExitCode

_AS_TOLD = "exit code 0"  # in the words of `Child.reap`


class Death(NamedTuple):
    """Facts about a child that has ended.

    `wanted`: the child was not dismissed. `recycling`: the child was told to leave because of its memory. `interrupted`: the child
    was a worker in the middle of a run. `lane_served`: the lane of the child has served before. `reason`: exit code or signal.
    `failure`: the child's own message and exit code. `verdict`: reason for which the supervisor killed the child as hung.
    """

    child: str
    reason: str
    wanted: bool
    recycling: bool
    ready: bool
    interrupted: bool
    lane_served: bool
    failure: tuple[str, int] | None = None
    verdict: str = ""


class Successor(Enum):
    """Time at which a successor starts."""

    NONE = "none"
    AT_ONCE = "at once"
    AFTER_BACKOFF = "after backoff"


class Succession(NamedTuple):
    """Decision about the seat of a child that has ended.

    `recycled`: the successor counts as recycled, not as restarted. `died`: reason for the log, None if the child ended as told.
    `failure`: reason and exit code with which the start or change fails, or None.
    """

    successor: Successor
    recycled: bool = False
    died: str | None = None
    failure: tuple[str, int] | None = None


def decide(death: Death) -> Succession:
    """Return the row of the table above for a child that has ended."""
    if not death.wanted:
        return Succession(Successor.NONE)
    if death.recycling and death.ready and death.reason == _AS_TOLD:
        return Succession(Successor.AT_ONCE, recycled=True)
    died = death.failure[0] if death.failure else death.verdict or death.reason
    if death.interrupted:
        return Succession(Successor.AT_ONCE, died=died)
    if not death.ready and not death.lane_served:
        ended = f"the {death.child} ended while it started: {death.reason}", int(ExitCode.FAILED)
        return Succession(Successor.AFTER_BACKOFF, died=died, failure=death.failure or ended)
    return Succession(Successor.AFTER_BACKOFF, died=died)
