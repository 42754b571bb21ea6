"""Reply stream of a client."""

from cluster_serving.client.errors import ResultTimeout

REPLY_LIFE_MS = 60_000
"""Time to live of a reply stream after the last sign of its client."""
REPLIES_AT_ONCE = 64
"""Most entries of a reply stream per read."""


def no_result(what: str, *, stream_vanished: bool) -> ResultTimeout:
    """Return the error for a result that did not come in time, with the probable reason."""
    why = "the reply stream was deleted meanwhile" if stream_vanished else "is a node of this job running?"
    return ResultTimeout(f"no result {what}; {why}")


def next_id(entry_id: bytes) -> bytes:
    """Return the smallest id after `entry_id`."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return b"%b-%d" % (milliseconds, int(sequence) + 1)
