"""Trace of the running call, of a program that uses OpenTelemetry."""

import sys


def current_traceparent() -> str:
    """Return the W3C Trace Context of OpenTelemetry's current span. Empty: there is none, or the program has no OpenTelemetry.

    Nothing is imported: a program with a current span has imported `opentelemetry.trace` itself.
    """
    if (trace := sys.modules.get("opentelemetry.trace")) is None:
        return ""
    span = trace.get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else ""
