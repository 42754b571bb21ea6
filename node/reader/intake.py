"""Intake: the reader's next step, decided from facts alone. The first row that holds decides.

    situation                          step             reason
    ---------------------------------  ---------------  ------------------------------------------------------------------
    a read is under way                WAIT             the connection takes no further command before the reply
    draining, and the lane is empty    END              the last result is published
    the leases are due for renewal     RENEW            also while draining: the lane still works. Makes a scan due
    Redis' clock is due                MEASURE          also while draining: deadlines and receipts are on Redis' clock
    draining                           WAIT             entries not taken are for other consumers
    a backlog, or no free slot         WAIT             back-pressure: entries without room stay in the stream
    a suspect in the lane              WAIT             the suspect runs alone
    orphans                            CLAIM            orphans are older than the entries to be read
    suspects, and the lane is empty    CLAIM_SUSPECT    with nothing else in the lane, a death is put down to the right entry
    suspects                           WAIT             new entries would never let the lane become empty
    streams of old clients are due     MOVE             in place of one read, and of none while the lane has no room
    a scan is due                      SCAN             in place of one read, so that the scan also happens under load
    none of these                      READ

Pending entries that no lane works on have two sources: entries under this consumer's name, listed at each connection, and stale
entries of other consumers, found by a scan. Both are claimed:

    pending ──┬── delivered once ───► orphan: claimed with up to a batch of orphans
              └── delivered again ──► suspect: claimed alone, entries with the most deliveries last

An entry that was delivered more than once may have killed its readers or their machines.
"""

from collections.abc import Callable
from enum import Enum, auto

import msgspec


class Step(Enum):
    """Step of the reader. CLAIM, CLAIM_SUSPECT and READ take entries into the lane."""

    WAIT = auto()
    END = auto()
    RENEW = auto()
    MEASURE = auto()
    CLAIM = auto()
    CLAIM_SUSPECT = auto()
    MOVE = auto()
    SCAN = auto()
    READ = auto()


class Facts(msgspec.Struct, frozen=True):
    """Facts that the reader knows without a look at the ring.

    Attributes:
        reading: the reply to a read has not come yet.
        draining: the reader was told to stop, and finishes the entries in the lane.
        renewal_due: the leases of the entries in the lane are due for renewal.
        clock_due: Redis' clock is due to be measured.
        backlog: entries taken wait for a slot.
        suspect_last: the entry taken last is a suspect.
        orphans: orphans wait to be claimed.
        suspects: suspects wait to be claimed.
        legacy_due: the streams of clients before 0.9 are due to be looked at.
        scan_due: a scan for stale entries is due.
    """

    reading: bool = False
    draining: bool = False
    renewal_due: bool = False
    clock_due: bool = False
    backlog: bool = False
    suspect_last: bool = False
    orphans: bool = False
    suspects: bool = False
    legacy_due: bool = False
    scan_due: bool = False


def next_step(facts: Facts, has_room: Callable[[], bool], is_empty: Callable[[], bool]) -> Step:
    """Return the next step.

    Args:
        facts: known facts.
        has_room: returns whether the ring has a free slot.
        is_empty: returns whether the lane works on no entry, from the backlog to the last result. Like `has_room`, called only for
            rows that need the answer, because the answer takes a look at every slot.
    """
    if facts.reading:
        return Step.WAIT
    if facts.draining and is_empty():
        return Step.END
    if facts.renewal_due:
        return Step.RENEW
    if facts.clock_due:
        return Step.MEASURE
    if facts.draining or facts.backlog or not has_room():
        return Step.WAIT
    if facts.suspect_last and not is_empty():
        return Step.WAIT
    if facts.orphans:
        return Step.CLAIM
    if facts.suspects:
        return Step.CLAIM_SUSPECT if is_empty() else Step.WAIT
    if facts.legacy_due:
        return Step.MOVE
    return Step.SCAN if facts.scan_due else Step.READ


def is_suspect(deliveries: int, max_deliveries: int) -> bool:
    """Return whether a pending entry must run alone.

    The first delivery makes no suspect, because most entries of a dead reader are innocent. An entry that may be delivered only
    once (`max_deliveries` is 1) is a suspect at once, and is refused when it is claimed.
    """
    return deliveries > min(1, max_deliveries - 1)
