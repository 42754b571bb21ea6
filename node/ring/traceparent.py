"""Trace of a record: W3C Trace Context, carried from the record's caller to the log lines and spans of the record."""

import re

MAX_TRACEPARENT_BYTES = 256
"""Limit of a traceparent in bytes. A valid traceparent has 55 bytes. A traceparent above the limit is ignored."""

# Version, trace, span and flags. Versions after 00 may have more behind the flags, and ff is none. Zeros are no ids.
_TRACEPARENT = re.compile(
    rb"(?:(00)|(?!00|ff)[0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?(1)|(?:-.*)?)",
    re.DOTALL,
)
_ODD = frozenset(b"%x" % digit for digit in range(1, 16, 2))


def bounded(traceparent: bytes) -> bytes:
    """Return the traceparent, or empty bytes if the traceparent is too long to be kept."""
    return traceparent if len(traceparent) <= MAX_TRACEPARENT_BYTES else b""


def traced(traceparent: bytes) -> dict[str, str]:
    """Return the fields of a log line that name the trace. Empty without a trace."""
    return {"traceparent": traceparent.decode(errors="replace")} if traceparent else {}


def is_sampled(traceparent: bytes) -> bool:
    """Return whether a traceparent, if it is valid, says that the caller has sampled the trace."""
    return traceparent[54:55] in _ODD  # flag 01 in the last digit of the flags; a tenth of the time of `parsed`


def parsed(traceparent: bytes) -> tuple[int, int] | None:
    """Return the ids of the trace and of the caller's span. None: the traceparent is not valid, and to be ignored."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return (int(found[2], 16), int(found[3], 16)) if found is not None else None
