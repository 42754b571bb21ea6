"""`POST /model-secure`: puts secret and salt of encrypted models into Redis, where nodes wait for both."""

from typing import Any
from urllib.parse import unquote

from sanic import HTTPResponse, Request, Sanic
from sanic.response import text

from cluster_serving.client import keys
from cluster_serving.client.errors import RedisRefused
from cluster_serving.frontend.errors import BadRequest
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.routes.gate import route
from cluster_serving.frontend.routes.state import Frontend

# Texts of the original, which programs look for.
_DONE = "model secured secrect and salt succeed to put in redis"
_NOT_DONE = "model secured secrect and salt failed to put in redis"
_WANTED = "please post a content like secret=xxx&salt=xxxx"


def add(app: Sanic[Any, Any]) -> None:
    """Add the route."""
    route(app, "/model-secure", ["POST"], _secure, name="model_secure")


async def _secure(request: Request) -> HTTPResponse:
    """Save secret and salt. Neither value is ever logged or repeated."""
    frontend: Frontend = request.app.ctx.frontend
    if not frontend.config.model_secure_enabled:
        return json_response({"error": "/model-secure is switched off (modelSecureEnabled)"}, 404)
    try:
        parts = [part.partition("=") for part in request.body.decode().strip().split("&")]
        # Percent-encoding is decoded. `+` stays, because base64 has `+`.
        given = {name: unquote(value, errors="strict") for name, _, value in parts}
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8\n {_WANTED}") from error
    missing = [name for name in (keys.SECRET, keys.SALT) if not given.get(name)]
    if missing:
        raise BadRequest(f"the body has no {' and no '.join(missing)}\n {_WANTED}")
    try:
        await frontend.models.calls.save(keys.MODEL_SECURED, {name: given[name] for name in (keys.SECRET, keys.SALT)})
    except RedisRefused:  # Redis's words may repeat the secret
        return json_response({"error": _NOT_DONE}, 500)
    return text(_DONE)
