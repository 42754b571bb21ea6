"""One request on its way: what it asks for beside its body, and what is told about it with the answer."""

import re
from typing import Any

import msgspec
from sanic import Request

from cluster_serving.frontend.errors import BadRequest

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Receipt(msgspec.Struct, frozen=True):
    """What a result's receipt says of the time it took; what no worker has seen has no such times."""

    entry: str = ""
    filled_ms: float | None = None
    wait_ms: float | None = None
    run_ms: float | None = None

    @property
    def run_s(self) -> float | None:
        """How long the model ran for the batch that the record was in."""
        return None if self.run_ms is None else self.run_ms / 1000

    def server_timing(self, total_s: float) -> str:
        """The header `Server-Timing`: milliseconds in the queue, waiting for a worker, and in the model."""
        if self.filled_ms is None or self.wait_ms is None or self.run_ms is None:
            return f"total;dur={1000 * total_s:.3f}"
        queue_ms = max(0.0, self.filled_ms - int(self.entry.partition("-")[0]))
        times = queue_ms, self.wait_ms, self.run_ms, 1000 * total_s
        return "queue;dur=%.3f, wait;dur=%.3f, run;dur=%.3f, total;dur=%.3f" % times  # noqa: UP031 - faster


read_receipt = msgspec.json.Decoder(Receipt).decode


class Visit:
    """Found by handlers as `request.ctx.visit`.

    Attributes:
        request_id: `X-Request-ID` of the request; None: it has none.
        timeout_s: how long it may take: `?timeout=` or `X-Request-Timeout` in seconds, `requestTimeout` at most.
        traceparent: W3C Trace Context, empty where there is none.
        receipt: of one of its results; None: it has none.
    """

    __slots__ = ("receipt", "request_id", "timeout_s", "traceparent")

    def __init__(self, request: Request, longest_s: float) -> None:
        """Read what a request asks for.

        Raises:
            BadRequest: its timeout is not a number of seconds.
        """
        headers = request.headers
        self.request_id = request_id_of(request)
        trace = headers.get("traceparent")
        # What is no valid one must be ignored, says the standard.
        self.traceparent = trace.encode() if trace and _TRACEPARENT.fullmatch(trace) else b""
        self.timeout_s = longest_s
        self.receipt: Receipt | None = None
        asked = headers.get("x-request-timeout")
        if asked is None and "timeout=" in request.query_string:
            asked = request.args.get("timeout")
        if asked is not None:
            self.limit(asked)

    def limit(self, seconds: Any) -> None:
        """Take a shorter timeout than the one so far.

        Raises:
            BadRequest: not a number of seconds.
        """
        try:
            timeout_s = float(seconds)
        except (TypeError, ValueError):
            timeout_s = 0.0
        if not timeout_s > 0:
            raise BadRequest(f"the timeout is a number of seconds above 0, not {str(seconds)[:40]!r}")
        self.timeout_s = min(self.timeout_s, timeout_s)


def request_id_of(request: Request) -> str | None:
    """`X-Request-ID` of a request; None where it has none, or one that could not be sent back."""
    given: str | None = request.headers.get("x-request-id")
    return given if given and _REQUEST_ID.fullmatch(given) else None
