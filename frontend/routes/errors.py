"""Errors as responses of JSON, with `Retry-After` where a retry makes sense.

401    without `Retry-After`; `WWW-Authenticate: Bearer`
429    seconds until the next token (`models/limits.py`), or until the queue has room (`models/registry.py`)
503    one second
"""

from collections.abc import Mapping
from time import monotonic
from typing import Any

import structlog
from sanic import HTTPResponse, Request, Sanic
from sanic.exceptions import SanicException

from cluster_serving.client.errors import ClusterServingError, ConnectionLost, RecordFailed
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.frontend.http.errors import REDIS_AWAY, SEE_LOG, Limited, RequestError
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.models.visit import request_id_of

log = structlog.get_logger(__name__)

_UNAVAILABLE_S = 1  # nodes and Redis come back within seconds
_TELL_S = 1.0
_NO_ROUTE = "none"  # route name of requests that no handler has answered


class Troubles:
    """Log of the requests that Redis did not serve, with a line a second at most."""

    def __init__(self) -> None:
        self._untold = 0
        self._told_s = float("-inf")

    def tell(self, error: Exception) -> None:
        """Count a request, and log the error and the number of requests unless the last line is too young."""
        self._untold += 1
        if monotonic() - self._told_s >= _TELL_S:
            log.warning("Redis did not serve requests", reason=str(error), requests=self._untold)
            self._untold, self._told_s = 0, monotonic()


_troubles = Troubles()


def error_response(error: ClusterServingError, rate_limit_status: int = 429) -> HTTPResponse:
    """Return `{"error": ...}` with the HTTP status of an error."""
    status = rate_limit_status if isinstance(error, Limited) else error.http_status
    if isinstance(error, ConnectionLost):
        text = REDIS_AWAY
        _troubles.tell(error)
    elif isinstance(error, RedisRefused):
        text = f"Redis has refused the request; {SEE_LOG}"
        _troubles.tell(error)
    else:
        text = error.reason if isinstance(error, RecordFailed) else str(error)
    response = json_response({"error": text}, status)
    if isinstance(error, RequestError) and error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    elif status == 503:
        response.headers["Retry-After"] = str(_UNAVAILABLE_S)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def add_error_handlers(app: Sanic[Any, Any]) -> None:
    """Answer requests that reach no handler in JSON too: unknown paths, bodies that are too large, faults of our own."""

    def refused(request: Request, error: SanicException) -> HTTPResponse:
        return unrouted(request, str(error), error.status_code, error.headers)

    def failed(request: Request, error: Exception) -> HTTPResponse:
        log.error("a request failed", path=request.path, exc_info=error)
        return unrouted(request, "an internal error; see the log of the frontend", 500, {})

    def unrouted(request: Request, text: str, status: int, headers: Mapping[str, Any]) -> HTTPResponse:
        request.app.ctx.frontend.timers.count_request(_NO_ROUTE, status)
        response = json_response({"error": text}, status)
        response.headers.update(headers)
        request_id = request_id_of(request)
        if request_id is not None:
            response.headers["X-Request-ID"] = request_id
        return response

    app.error_handler.add(SanicException, refused)
    app.error_handler.add(Exception, failed)
