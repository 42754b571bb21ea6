"""Access for pages of other origins, from their visitors' browsers (https://fetch.spec.whatwg.org/#http-cors-protocol).

Off unless `corsOrigins` names origins. When off, requests pass no middleware. The API has no use for cookies, so none are
allowed.
"""

from collections.abc import Collection
from typing import Any

from sanic import HTTPResponse, Request, Sanic
from sanic.response import BaseHTTPResponse

_EVERYBODY = "*"
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "DELETE, GET, POST",
    "Access-Control-Allow-Headers": "Accept, Authorization, Callback, Content-Encoding, Content-Type, "
    "Inference-Header-Content-Length, Prefer, Traceparent, X-API-Key, X-Request-ID, X-Request-Timeout",
    "Access-Control-Max-Age": "600",
}
_EXPOSED = "Inference-Header-Content-Length, Location, Retry-After, Server-Timing, X-Request-ID"


def add(app: Sanic[Any, Any], origins: Collection[str]) -> None:
    """Answer preflights of some origins, and let the pages of these origins read responses.

    Args:
        app: application that gets the middleware.
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
        # A response cached for one origin is not valid for another.
        response.headers.add("Vary", "Origin")
        origin = allowed_for(request)
        if "origin" in request.headers and origin is not None:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED

    app.register_middleware(answer_preflight, "request")
    app.register_middleware(let_read, "response")
