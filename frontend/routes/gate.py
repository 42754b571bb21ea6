"""The gate of every request, on the way to a handler and back: API key, token, timers, request id, errors as JSON."""

from collections.abc import Callable, Coroutine
from time import monotonic, perf_counter
from typing import Any

from sanic import HTTPResponse, Request

from cluster_serving.client.errors import ClusterServingError
from cluster_serving.frontend.http.errors import Unauthorized
from cluster_serving.frontend.metrics.timers import Count, Timer
from cluster_serving.frontend.models.limits import take_token
from cluster_serving.frontend.models.visit import Visit, request_id_of, server_timing
from cluster_serving.frontend.routes.errors import error_response
from cluster_serving.frontend.routes.state import Frontend

Handler = Callable[..., Coroutine[Any, Any, HTTPResponse]]

_SCHEMES = ("bearer", "token")


def gated(handler: Handler, name: str, *, is_open: bool, is_limited: bool) -> Handler:
    """Return a handler behind the gate. The arguments are those of `Routes.route`."""

    async def pass_gate(request: Request, **arguments: str) -> HTTPResponse:
        begun_s = perf_counter()
        frontend: Frontend = request.app.ctx.frontend
        timers = frontend.timers
        timers.count(Count.IN_FLIGHT)
        visit: Visit | None = None
        try:
            visit = request.ctx.visit = Visit(request, frontend.config)
            if not is_open:
                if frontend.api_keys is not None:
                    key = _api_key(request)
                    if not frontend.api_keys.allows(key, monotonic()):
                        raise Unauthorized("this needs an API key: the header X-API-Key, or Authorization: Bearer")
                    visit.api_key = key
                if is_limited and frontend.bucket is not None:
                    await take_token(frontend.bucket, timers)
            response = await handler(request, **arguments)
        except ClusterServingError as error:
            response = error_response(error, frontend.config.rate_limit_status)
        finally:
            timers.count(Count.IN_FLIGHT, -1)
        elapsed_s = perf_counter() - begun_s
        request_id = request_id_of(request)
        if request_id is not None:
            response.headers["X-Request-ID"] = request_id
        if visit is not None and visit.receipt is not None:
            response.headers["Server-Timing"] = server_timing(visit.receipt, elapsed_s)
        timers.observe(Timer.OVERALL, elapsed_s)
        timers.count_request(name, response.status)
        return response

    return pass_gate


def _api_key(request: Request) -> str:
    """Return the API key of a request, or an empty text."""
    headers = request.headers
    given: str = headers.get("x-api-key", "").strip()
    if given:
        return given
    authorization: str = headers.get("authorization", "").strip()
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() in _SCHEMES else authorization
