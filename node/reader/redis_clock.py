"""Redis' clock, by which deadlines and receipts go, as this machine knows it."""

import time

from cluster_serving.client.threads.link import Link

_CALLS = 5  # one alone may have waited for a processor


def offset_ms(link: Link) -> int:
    """How much Redis' clock is ahead of this machine's.

    By the quickest of some answers: of a slow one nobody knows when in between Redis looked at its clock.

    Raises:
        ConnectionLost: Redis does not answer.
    """
    _, offset = min(_ask(link) for _ in range(_CALLS))
    return round(offset)


def _ask(link: Link) -> tuple[float, float]:
    """How long the answer took, and the offset if it came from the middle of that time; milliseconds."""
    before_ms = time.time() * 1000
    seconds, microseconds = link.call("TIME")
    after_ms = time.time() * 1000
    return after_ms - before_ms, int(seconds) * 1000 + int(microseconds) / 1000 - (before_ms + after_ms) / 2
