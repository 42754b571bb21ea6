"""One request on its way: what it asks for beside its body, and what is told about it with the answer."""

import re
from collections.abc import Mapping
from typing import Any

from sanic import Request

from cluster_serving.frontend.errors import BadRequest

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Visit:
    """Found by handlers as `request.ctx.visit`.

    Attributes:
        request_id: `X-Request-ID` of the request; None: it has none.
        timeout_s: how long it may take: `?timeout=` or `X-Request-Timeout` in seconds, `requestTimeout` at most.
        traceparent: W3C Trace Context, empty where there is none.
        receipt: of one of its results; says where the time went.
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
        self.receipt: Mapping[str, Any] = {}
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

    @property
    def run_s(self) -> float | None:
        """How long the model ran for the record of the receipt."""
        run_ms = self.receipt.get("run_ms")
        return None if run_ms is None else run_ms / 1000

    def server_timing(self, total_s: float) -> str:
        """The header `Server-Timing`: milliseconds in the queue, waiting for a worker, and in the model."""
        total = f"total;dur={1000 * total_s:.3f}"
        try:
            receipt = self.receipt
            filled_ms, wait_ms, run_ms = receipt["filled_ms"], receipt["wait_ms"], receipt["run_ms"]
            queue_ms = max(0.0, filled_ms - int(receipt["entry"].partition("-")[0]))
        except KeyError:  # a record that no worker has seen has no such times
            return total
        return f"queue;dur={queue_ms:.3f}, wait;dur={wait_ms:.3f}, run;dur={run_ms:.3f}, {total}"


def request_id_of(request: Request) -> str | None:
    """`X-Request-ID` of a request; None where it has none, or one that could not be sent back."""
    given: str | None = request.headers.get("x-request-id")
    return given if given and _REQUEST_ID.fullmatch(given) else None
