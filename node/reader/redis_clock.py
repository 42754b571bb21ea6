"""Redis' clock, the clock of ids, deadlines and receipts, as measured from this machine."""

import time
from pathlib import Path

from cluster_serving.client import keys
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.threads.link import Link

RESTART_IDS = Script(Path(__file__).with_name("restart_ids.lua").read_text())

MEASURE_S = 3.0
"""Seconds between two measurements: clocks drift apart, and Redis' clock may be set."""

_CALLS = 5  # a single call may have waited for a processor
_AHEAD_MS = 86_400_000  # a day: ids are a little ahead when Redis' clock was set back


def offset_ms(link: Link) -> int:
    """Return the milliseconds by which Redis' clock is ahead of the monotonic clock.

    The monotonic clock is the base, because the system time may be set between two measurements. The quickest of several answers
    counts, because a slow answer leaves open when Redis read its clock.

    Raises:
        ConnectionLost: Redis does not answer.
    """
    answers: list[tuple[float, float]] = []  # milliseconds until the answer, and offset
    for _ in range(_CALLS):
        before_ms = time.monotonic() * 1000
        seconds, microseconds = link.call("TIME")
        after_ms = time.monotonic() * 1000
        halfway_ms = (before_ms + after_ms) / 2  # Redis is taken to read its clock halfway
        answers.append((after_ms - before_ms, int(seconds) * 1000 + int(microseconds) / 1000 - halfway_ms))
    _, offset = min(answers)
    return round(offset)


def restart_ids(link: Link, stream: str) -> bool:
    """Begin the ids of an empty stream anew if they are far ahead of Redis' clock. Return whether they begin anew.

    Raises:
        ConnectionLost: Redis does not answer.
        RedisRefused: the stream does not exist.
    """
    return bool(link.run(RESTART_IDS, [stream], [keys.GROUP, _AHEAD_MS]))
