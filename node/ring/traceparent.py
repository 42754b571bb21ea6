"""The trace that a record belongs to: W3C Trace Context, carried from its caller to the log lines that name the record."""

MAX_TRACEPARENT_BYTES = 256
"""A valid one has 55; a longer one is ignored."""


def bounded(traceparent: bytes) -> bytes:
    """The field as it may be kept; empty for one that is too long."""
    return traceparent if len(traceparent) <= MAX_TRACEPARENT_BYTES else b""


def traced(traceparent: bytes) -> dict[str, str]:
    """What a log line says of the trace; nothing when there is none."""
    return {"traceparent": traceparent.decode(errors="replace")} if traceparent else {}
