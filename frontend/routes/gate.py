"""The gate of every request, on the way to a handler and back: API key, token, timers, errors as JSON with `Retry-After`."""

from collections.abc import Awaitable, Callable
from time import monotonic, perf_counter
from typing import Any

import structlog
from sanic import HTTPResponse, Request, Sanic
from sanic.exceptions import SanicException

from cluster_serving.client.errors import ClusterServingError, RecordFailed
from cluster_serving.frontend.errors import Limited, RequestError, Unauthorized
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.metrics.timers import Count, Timer
from cluster_serving.frontend.models.limits import take_token
from cluster_serving.frontend.models.visit import Visit, request_id_of
from cluster_serving.frontend.routes.state import Frontend

log = structlog.get_logger(__name__)

Handler = Callable[..., Awaitable[HTTPResponse]]

_RETRY_AFTER_S = 1  # after a 503: nodes and Redis come back within seconds
_NO_ROUTE = "none"  # route name of requests that no handler has answered


def route(
    app: Sanic[Any, Any],
    path: str,
    methods: list[str],
    handler: Handler,
    *,
    name: str,
    is_open: bool = False,
    is_limited: bool = True,
) -> None:
    """Register a handler.

    Args:
        app: application that gets the route.
        path: path in Sanic's notation.
        methods: HTTP methods.
        handler: called with the request and the arguments in the path. Raises `ClusterServingError` for a request without an
            answer.
        name: unique name of the route.
        is_open: whether the route needs no API key: health, documentation.
        is_limited: whether the route needs a token. An open route never does.
    """

    async def gated(request: Request, **arguments: str) -> HTTPResponse:
        begun_s = perf_counter()
        frontend: Frontend = request.app.ctx.frontend
        timers = frontend.timers
        timers.count(Count.IN_FLIGHT)
        visit: Visit | None = None
        try:
            visit = request.ctx.visit = Visit(request, frontend.config.request_timeout_s)
            if not is_open:
                _check_key(request, frontend)
                if is_limited and frontend.bucket is not None:
                    await take_token(frontend.bucket, timers)
            response = await handler(request, **arguments)
        except ClusterServingError as error:
            response = error_response(error, frontend.config.rate_limit_status)
        finally:
            timers.count(Count.IN_FLIGHT, -1)
        elapsed_s = perf_counter() - begun_s
        if visit is not None:
            _named(response, visit.request_id)
            if visit.receipt is not None:
                response.headers["Server-Timing"] = visit.receipt.server_timing(elapsed_s)
        timers.observe(Timer.OVERALL, elapsed_s)
        timers.count_request(name, response.status)
        return response

    app.add_route(gated, path, methods=[*methods, *(["HEAD"] if methods == ["GET"] else [])], name=name)


def error_response(error: ClusterServingError, rate_limit_status: int = 429) -> HTTPResponse:
    """Return `{"error": ...}` with the HTTP status of an error."""
    status = rate_limit_status if isinstance(error, Limited) else error.http_status
    text = error.reason if isinstance(error, RecordFailed) else str(error)
    response = json_response({"error": text}, status)
    if isinstance(error, RequestError) and error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    elif status == 503:
        response.headers["Retry-After"] = str(_RETRY_AFTER_S)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def add_error_handlers(app: Sanic[Any, Any]) -> None:
    """Answer requests that reach no handler in JSON too: unknown paths, bodies that are too large, faults of our own."""

    def refused(request: Request, error: SanicException) -> HTTPResponse:
        request.app.ctx.frontend.timers.count_request(_NO_ROUTE, error.status_code)
        response = json_response({"error": str(error)}, error.status_code)
        response.headers.update(error.headers)
        return _named(response, request_id_of(request))

    def failed(request: Request, error: Exception) -> HTTPResponse:
        request.app.ctx.frontend.timers.count_request(_NO_ROUTE, 500)
        log.error("a request failed", path=request.path, exc_info=error)
        response = json_response({"error": "an internal error; see the log of the frontend"}, 500)
        return _named(response, request_id_of(request))

    app.error_handler.add(SanicException, refused)
    app.error_handler.add(Exception, failed)


def _named(response: HTTPResponse, request_id: str | None) -> HTTPResponse:
    if request_id is not None:
        response.headers["X-Request-ID"] = request_id
    return response


def _check_key(request: Request, frontend: Frontend) -> None:
    if frontend.api_keys is None:
        return
    key = str(request.headers.get("x-api-key") or request.token or "")
    if not frontend.api_keys.allows(key, monotonic()):
        raise Unauthorized("this needs an API key: the header X-API-Key, or Authorization: Bearer")
