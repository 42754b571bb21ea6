"""`/livez`: the process answers. `/readyz`: the frontend can serve."""

from typing import Any

from sanic import HTTPResponse, Request, Sanic

from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.routes.gate import route


def add(app: Sanic[Any, Any]) -> None:
    """Add the routes."""
    route(app, "/livez", ["GET"], _live, name="livez", is_open=True)
    route(app, "/readyz", ["GET"], _ready, name="readyz", is_open=True)


async def _live(_request: Request) -> HTTPResponse:
    return json_response({"live": True})


async def _ready(request: Request) -> HTTPResponse:
    """Return 200 if every Redis can be reached and at least one model is ready, else 503 with the reason."""
    models = request.app.ctx.frontend.models
    ready = sorted({served.name for served in models.all() if served.job.ready})
    unreachable = [registry.described for registry in models.registries if not registry.reachable]
    if ready and not unreachable:
        return json_response({"ready": True, "models": ready})
    why = f"Redis at {', '.join(unreachable)} cannot be reached" if unreachable else "no node is ready"
    return json_response({"ready": False, "models": ready, "error": why}, 503)
