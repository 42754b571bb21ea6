"""Lets pages of other origins call, from the browsers of their visitors (https://fetch.spec.whatwg.org/#http-cors-protocol).

Off unless `corsOrigins` names origins; nothing is added to a request then. Cookies are of no use here, so none are allowed.
"""

from collections.abc import Collection
from typing import Any

from sanic import HTTPResponse, Request, Sanic
from sanic.response import BaseHTTPResponse

_EVERYBODY = "*"
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Accept, Authorization, Content-Type, Inference-Header-Content-Length, Traceparent, "
    "X-API-Key, X-Request-ID, X-Request-Timeout",
    "Access-Control-Max-Age": "600",
}
_EXPOSED = "Inference-Header-Content-Length, Retry-After, Server-Timing, X-Request-ID"


def add(app: Sanic[Any, Any], origins: Collection[str]) -> None:
    """Answer preflights of these origins, and let their pages read responses.

    Args:
        app: the application.
        origins: as `https://example.com`, or `*` for all.
    """
    allowed = {origin.rstrip("/") for origin in origins}

    def allowed_for(request: Request) -> str | None:
        if _EVERYBODY in allowed:
            return _EVERYBODY
        origin = request.headers.get("origin")
        return origin if origin in allowed else None

    async def answer_preflight(request: Request) -> HTTPResponse | None:
        is_preflight = request.method == "OPTIONS" and "access-control-request-method" in request.headers
        return HTTPResponse(status=204, headers=_PREFLIGHT) if is_preflight and allowed_for(request) else None

    async def let_read(request: Request, response: BaseHTTPResponse) -> None:
        # What a cache keeps for one origin is not for another.
        response.headers.add("Vary", "Origin")
        origin = allowed_for(request)
        if "origin" in request.headers and origin is not None:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED

    app.register_middleware(answer_preflight, "request")
    app.register_middleware(let_read, "response")
