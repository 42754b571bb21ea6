"""The reply stream of a client."""

from cluster_serving.client.errors import ResultTimeout

REPLY_LIFE_MS = 60_000
"""A reply stream lives so long after its client was last seen."""
REPLIES_AT_ONCE = 64
"""Entries of a reply stream that one read takes at most."""


def no_result(what: str, *, stream_vanished: bool) -> ResultTimeout:
    """The error for a result that did not come in time, and what may be the reason."""
    why = "the reply stream was deleted meanwhile" if stream_vanished else "is a node of this job running?"
    return ResultTimeout(f"no result {what}; {why}")


def next_id(entry_id: bytes) -> bytes:
    """The smallest id behind this one."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return b"%b-%d" % (milliseconds, int(sequence) + 1)
