"""Health of the frontend, for probes: `/livez`, `/readyz`."""

from sanic import HTTPResponse, Request

from cluster_serving.client.wire.heartbeat import release
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.routes.routes import Routes

routes = Routes()


@routes.get("/livez", "livez", is_open=True)
async def live(_request: Request) -> HTTPResponse:
    """Return 200: the process answers."""
    return json_response({"live": True})


@routes.get("/readyz", "readyz", is_open=True)
async def ready(request: Request) -> HTTPResponse:
    """Return 200 if every Redis can be reached and at least one model is ready, else 503 with the reason.

    While nodes are of another release than the frontend, `releases` names the frontend's and theirs.
    """
    models = request.app.ctx.frontend.models
    names = sorted({served.name for served in models.all() if served.job.ready})
    unreachable = [registry.described for registry in models.registries if not registry.reachable]
    others = sorted({found for registry in models.registries for found in registry.releases})
    releases = {"releases": {"frontend": release(), "others": others}} if others else {}
    if names and not unreachable:
        return json_response({"ready": True, "models": names, **releases})
    why = f"Redis at {', '.join(unreachable)} cannot be reached or cannot serve" if unreachable else "no node is ready"
    return json_response({"ready": False, "models": names, "error": why, **releases}, 503)
