"""One request on its way: its options beside the body, and the facts returned with the answer."""

import re
from typing import Any

from sanic import Request

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.receipt import Receipt
from cluster_serving.client.wire.result import Result
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.models.later.target import Target

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_RESPOND_ASYNC = re.compile(r"(?:^|[,;\s])respond-async(?:$|[,;\s])", re.IGNORECASE)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Visit:
    """Options and receipt of a request, found by handlers as `request.ctx.visit`.

    Attributes:
        api_key: API key of the request. Empty: none, or none is needed.
        callback: URL for the answer: `Callback` or `?callback=`. Empty: none.
        is_later: True if the answer is to be fetched later: `Prefer: respond-async`, `?async=1`, or a callback.
        timeout_s: seconds that the request may take: `?timeout=` or `X-Request-Timeout`, at most `requestTimeout`, or
            `laterTimeout` for an answer that is fetched later.
        traceparent: W3C Trace Context, or empty.
        receipt: receipt of one of the results, or None.
    """

    __slots__ = ("api_key", "callback", "is_later", "receipt", "timeout_s", "traceparent")

    def __init__(self, request: Request, config: FrontendConfig) -> None:
        """Read the options of a request.

        Raises:
            BadRequest: the timeout is not a number of seconds, `async` is neither 0 nor 1, or the callback
                may not be called.
        """
        headers = request.headers
        trace = headers.get("traceparent")
        # The standard says to ignore a traceparent that is not valid.
        self.traceparent = trace.encode() if trace and _TRACEPARENT.fullmatch(trace) else b""
        self.api_key = ""
        self.callback = _callback(request, config)
        self.is_later = bool(self.callback) or _wants_later(request)
        self.timeout_s = config.later_timeout_s if self.is_later else config.request_timeout_s
        self.receipt: Receipt | None = None
        asked = headers.get("x-request-timeout")
        if asked is None and "timeout=" in request.query_string:
            asked = request.args.get("timeout")
        if asked is not None:
            self.limit(asked)

    def limit(self, seconds: Any) -> None:
        """Lower the timeout. A longer timeout changes nothing.

        Raises:
            BadRequest: the value is not a number of seconds.
        """
        try:
            timeout_s = float(seconds)
        except (TypeError, ValueError):
            timeout_s = 0.0
        if not timeout_s > 0:
            raise BadRequest(f"the timeout is a number of seconds above 0, not {str(seconds)[:40]!r}")
        self.timeout_s = min(self.timeout_s, timeout_s)


def _callback(request: Request, config: FrontendConfig) -> str:
    """Return the checked URL for the answer, or an empty text."""
    url: str = request.headers.get("callback", "")
    if not url and "callback=" in request.query_string:
        url = request.args.get("callback", "")
    if url:
        if config.callback_secret is None:
            raise BadRequest("this frontend calls nobody back: its callbackSecret, which signs results, is not set")
        Target.parse(url, config.callback_hosts)
    return url


def _wants_later(request: Request) -> bool:
    if "async=" in request.query_string and (asked := request.args.get("async")) is not None:
        if asked not in ("0", "1"):
            raise BadRequest(f"async is 1, for an answer that is fetched later, or 0, not {asked[:40]!r}")
        return bool(asked == "1")
    return "prefer" in request.headers and any(map(_RESPOND_ASYNC.search, request.headers.getall("prefer")))


def request_id_of(request: Request) -> str | None:
    """Return `X-Request-ID` of a request. None: missing, or not fit to be sent back."""
    given: str | None = request.headers.get("x-request-id")
    return given if given and _REQUEST_ID.fullmatch(given) else None


def receipt_of(result: Result) -> Receipt | None:
    """Return the receipt of a result. None: no node wrote a receipt, or a node of another version did."""
    try:
        return result.receipt
    except CodecError:
        return None


def server_timing(receipt: Receipt, total_s: float) -> str:
    """Return the header `Server-Timing`: milliseconds in the queue, waiting for a worker, in the model, and in total."""
    queue_ms = max(0.0, receipt.filled_ms - receipt.enqueued_ms)
    times = queue_ms, receipt.wait_ms, receipt.run_ms, 1000 * total_s
    return "queue;dur=%.3f, wait;dur=%.3f, run;dur=%.3f, total;dur=%.3f" % times  # noqa: UP031 - faster
