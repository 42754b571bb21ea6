"""Trace of a record: W3C Trace Context, carried from the record's caller to the log lines that name the record."""

MAX_TRACEPARENT_BYTES = 256
"""Limit of a traceparent in bytes. A valid traceparent has 55 bytes. A traceparent above the limit is ignored."""


def bounded(traceparent: bytes) -> bytes:
    """Return the traceparent, or empty bytes if the traceparent is too long to be kept."""
    return traceparent if len(traceparent) <= MAX_TRACEPARENT_BYTES else b""


def traced(traceparent: bytes) -> dict[str, str]:
    """Return the fields of a log line that name the trace. Empty without a trace."""
    return {"traceparent": traceparent.decode(errors="replace")} if traceparent else {}
