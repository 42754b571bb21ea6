"""The Open Inference Protocol: `/v2`, as called by `tritonclient.http`."""

from functools import partial
from time import perf_counter
from typing import Any
from urllib.parse import unquote

from sanic import HTTPResponse, Request, Sanic

from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.frontend.errors import BadRequest
from cluster_serving.frontend.http.body import read
from cluster_serving.frontend.http.compression import deflate
from cluster_serving.frontend.http.json_body import parse
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.metrics.timers import Timer
from cluster_serving.frontend.models.models import Served
from cluster_serving.frontend.routes.gate import route
from cluster_serving.frontend.routes.state import Frontend
from cluster_serving.frontend.v2.asked import Asked
from cluster_serving.frontend.v2.headless import ASKED, HEADLESS, read_headless
from cluster_serving.frontend.v2.metadata import index_entry, model_config, model_metadata, server_metadata
from cluster_serving.frontend.v2.outputs import joined
from cluster_serving.frontend.v2.request import decode_request
from cluster_serving.frontend.v2.response import encode_response
from cluster_serving.frontend.v2.rows import Rows, split
from cluster_serving.frontend.v2.statistics import model_statistics
from cluster_serving.frontend.v2.tensors import read_tensors

_HEAD_BYTES = "Inference-Header-Content-Length"
_MODEL = "/v2/models/<model:str>"
_NOT_SERVED = {
    "/v2/repository/models/<path:path>": "models are loaded and unloaded by their nodes: see cluster-serving start",
    "/v2/systemsharedmemory/<path:path>": "shared memory is not supported: send the data in the body",
    "/v2/cudasharedmemory/<path:path>": "shared memory is not supported: send the data in the body",
    "/v2/trace/setting": "there are no trace settings: send a traceparent, and the logs of the nodes have it",
    f"{_MODEL}/trace/setting": "there are no trace settings: send a traceparent, and the logs of the nodes have it",
    "/v2/logging": "there are no log settings: see logLevel",
}


def add(app: Sanic[Any, Any]) -> None:
    """Add the routes."""
    route(app, "/v2", ["GET"], _server, name="v2")
    route(app, "/v2/health/live", ["GET"], _live, name="v2_live", is_open=True)
    route(app, "/v2/health/ready", ["GET"], _ready, name="v2_ready", is_open=True)
    route(app, "/v2/repository/index", ["POST"], _index, name="v2_index")
    route(app, "/v2/models/stats", ["GET"], _all_statistics, name="v2_all_statistics")
    for versioned, prefix in (("", _MODEL), ("_version", f"{_MODEL}/versions/<version:str>")):
        route(app, prefix, ["GET"], _metadata, name=f"v2_model{versioned}")
        route(app, f"{prefix}/ready", ["GET"], _model_ready, name=f"v2_model_ready{versioned}")
        route(app, f"{prefix}/config", ["GET"], _config, name=f"v2_config{versioned}")
        route(app, f"{prefix}/stats", ["GET"], _statistics, name=f"v2_statistics{versioned}")
        route(app, f"{prefix}/infer", ["POST"], _infer, name=f"v2_infer{versioned}")
    for number, (path, why) in enumerate(_NOT_SERVED.items()):
        route(app, path, ["GET", "POST"], _refusing(why), name=f"v2_not_served{number}")


async def _server(_request: Request) -> HTTPResponse:
    return json_response(server_metadata())


async def _live(_request: Request) -> HTTPResponse:
    return json_response({"live": True})


async def _ready(request: Request) -> HTTPResponse:
    """Return whether every model can be called: the protocol's meaning of ready.

    A model that has just begun to start makes the answer false. `/readyz` needs only one ready model.
    """
    states = [served.job.ready for served in _frontend(request).models.all()]
    ready = bool(states) and all(states)
    return json_response({"ready": ready}, 200 if ready else 503)


async def _index(request: Request) -> HTTPResponse:
    """Return the models, or with `{"ready": true}` the models that can be called."""
    asked = parse(request.body) if request.body else {}
    if not isinstance(asked, dict):
        raise BadRequest("the request is not a JSON object")
    only_ready = asked.get("ready") is True
    models = _frontend(request).models.all()
    return json_response([index_entry(served) for served in models if served.job.ready or not only_ready])


async def _metadata(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    return json_response(model_metadata(_find(request, model, version)))


async def _model_ready(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    served = _find(request, model, version)
    served.check_ready()
    return json_response({"name": served.name, "ready": True})


async def _config(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    return json_response(model_config(_find(request, model, version), _frontend(request).config.max_instances))


async def _statistics(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    return json_response({"model_stats": [model_statistics(_find(request, model, version))]})


async def _all_statistics(request: Request) -> HTTPResponse:
    return json_response({"model_stats": [model_statistics(served) for served in _frontend(request).models.all()]})


async def _infer(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    begun_s = perf_counter()
    config, timers = _frontend(request).config, _frontend(request).timers
    served = _find(request, model, version)
    served.check_ready()
    reader = partial(_read, served.job.described, request.headers.get(_HEAD_BYTES), config.max_instances)
    asked, (records, stacked) = await read(request, config.max_body_size, reader)
    if asked.timeout_s is not None:
        request.ctx.visit.limit(asked.timeout_s)
    timers.observe(Timer.MAKE_RECORDS, perf_counter() - begun_s)
    results = await served.predict(records, request)
    predicted_s = perf_counter()
    head = {"model_name": served.name, "model_version": served.version}
    batched = stacked or served.job.described.already_batched
    body, head_bytes = encode_response(head, joined(results, stacked), asked, batched)
    headers = {} if head_bytes is None else {_HEAD_BYTES: str(head_bytes)}
    body, encoding = deflate(body, request.headers.get("accept-encoding", ""))
    if encoding:
        headers["Content-Encoding"] = encoding
    content_type = "application/json" if head_bytes is None else "application/octet-stream"
    response = HTTPResponse(body, headers=headers, content_type=content_type)
    ended_s = perf_counter()
    timers.observe(Timer.MAKE_RESPONSE, ended_s - predicted_s)
    timers.observe(Timer.PREDICT, ended_s - begun_s)
    return response


def _read(node: Heartbeat, head_bytes: str | None, most: int, body: bytes) -> tuple[Asked, Rows]:
    """Return the options and the records of a request."""
    if head_bytes == HEADLESS:
        return ASKED, split(read_headless(body, node), node, most)
    infer, binary = decode_request(body, head_bytes)
    return Asked.of(infer), split(read_tensors(infer.inputs, binary), node, most)


def _refusing(why: str) -> Any:
    async def refuse(_request: Request, **_arguments: str) -> HTTPResponse:
        return json_response({"error": why}, 404)

    return refuse


def _find(request: Request, model: str, version: str | None) -> Served:
    return _frontend(request).models.find(unquote(model), unquote(version) if version else None)


def _frontend(request: Request) -> Frontend:
    frontend: Frontend = request.app.ctx.frontend
    return frontend
