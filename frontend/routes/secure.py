"""`POST /model-secure`: puts secret and salt of encrypted models into Redis, where nodes wait for both."""

from urllib.parse import unquote

from sanic import HTTPResponse, Request
from sanic.response import text

from cluster_serving.client import keys
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.routes.routes import Routes
from cluster_serving.frontend.routes.state import Frontend

routes = Routes()

# Texts of the original, which programs look for.
_DONE = "model secured secrect and salt succeed to put in redis"
_NOT_DONE = "model secured secrect and salt failed to put in redis"
_WANTED = "please post a content like secret=xxx&salt=xxxx"


@routes.post("/model-secure", "model_secure")
async def secure(request: Request) -> HTTPResponse:
    """Save secret and salt of a body `secret=...&salt=...`. Neither value is ever logged or repeated.

    Returns 200 with the text of the original, 404 if `modelSecureEnabled` is off, 400 without secret or salt, or 500 if Redis
    refuses.
    """
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
        await frontend.models.save(keys.MODEL_SECURED, {name: given[name] for name in (keys.SECRET, keys.SALT)})
    except RedisRefused:  # Redis's words may repeat the secret
        return json_response({"error": _NOT_DONE}, 500)
    return text(_DONE)
