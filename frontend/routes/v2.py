"""The Open Inference Protocol: `/v2`, as called by `tritonclient.http`."""

from functools import partial
from time import perf_counter

from sanic import HTTPResponse, Request

from cluster_serving.frontend.http.body import check_no_file, read
from cluster_serving.frontend.http.errors import BadRequest, NotReady
from cluster_serving.frontend.http.json_body import parse
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.models.models import Served
from cluster_serving.frontend.routes.respond import respond
from cluster_serving.frontend.routes.routes import Routes
from cluster_serving.frontend.routes.state import Frontend
from cluster_serving.frontend.v2.answer import HEAD_BYTES, Answer
from cluster_serving.frontend.v2.asked import Asked
from cluster_serving.frontend.v2.headless import ASKED, HEADLESS, read_headless
from cluster_serving.frontend.v2.metadata import index_entry, model_config, model_metadata, server_metadata
from cluster_serving.frontend.v2.request import decode_request
from cluster_serving.frontend.v2.rows import Rows, split
from cluster_serving.frontend.v2.statistics import model_statistics
from cluster_serving.frontend.v2.tensors import read_tensors

routes = Routes()

_MODEL = "/v2/models/<model:str>"
_VERSION = _MODEL + "/versions/<version:str>"
_NOT_SERVED = {
    "/v2/repository/models/<path:path>": "models are loaded and unloaded by their nodes: see cluster-serving start",
    "/v2/systemsharedmemory/<path:path>": "shared memory is not supported: send the data in the body",
    "/v2/cudasharedmemory/<path:path>": "shared memory is not supported: send the data in the body",
    "/v2/trace/setting": "there are no trace settings: send a traceparent, and the nodes log it and make spans of it",
    f"{_MODEL}/trace/setting": "there are no trace settings: send a traceparent, and the nodes log it and make spans of it",
    "/v2/logging": "there are no log settings: see logLevel",
}


@routes.get("/v2", "v2")
async def server(_request: Request) -> HTTPResponse:
    """Return 200 and name, version and extensions of the server."""
    return json_response(server_metadata())


@routes.get("/v2/health/live", "v2_live", is_open=True)
async def live(_request: Request) -> HTTPResponse:
    """Return 200: the process answers."""
    return json_response({"live": True})


@routes.get("/v2/health/ready", "v2_ready", is_open=True)
async def ready(request: Request) -> HTTPResponse:
    """Return 200 if every model can be called, the protocol's meaning of ready, else 503. Nothing can while Redis is away.

    A model that has just begun to start makes the answer false. `/readyz` needs only one ready model.
    """
    faults = [served.why_not_ready for served in _frontend(request).models.all()]
    all_ready = bool(faults) and not any(faults)
    return json_response({"ready": all_ready}, 200 if all_ready else 503)


@routes.post("/v2/repository/index", "v2_index")
async def index(request: Request) -> HTTPResponse:
    """Return 200 and the models, or with `{"ready": true}` the models that can be called. 400: the body is no JSON object."""
    asked = parse(request.body) if request.body else {}
    if not isinstance(asked, dict):
        raise BadRequest("the request is not a JSON object")
    only_ready = asked.get("ready") is True
    models = _frontend(request).models.all()
    return json_response([index_entry(served) for served in models if not (only_ready and served.why_not_ready)])


@routes.get("/v2/models/stats", "v2_all_statistics")
async def all_statistics(request: Request) -> HTTPResponse:
    """Return 200 and the statistics of all models."""
    return json_response({"model_stats": [model_statistics(served) for served in _frontend(request).models.all()]})


@routes.get(_MODEL, "v2_model")
@routes.get(_VERSION, "v2_model_version")
async def metadata(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    """Return 200 and the inputs and outputs of a model. 404: unknown. 503: without a node."""
    return json_response(model_metadata(_find(request, model, version)))


@routes.get(f"{_MODEL}/ready", "v2_model_ready")
@routes.get(f"{_VERSION}/ready", "v2_model_ready_version")
async def model_ready(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    """Return 200 if a model can be called. 404: unknown. 503: no node is ready, or Redis cannot be reached."""
    served = _find(request, model, version)
    if why := served.why_not_ready:
        raise NotReady(f"{served.name} is not ready: {why}")
    return json_response({"name": served.name, "ready": True})


@routes.get(f"{_MODEL}/config", "v2_config")
@routes.get(f"{_VERSION}/config", "v2_config_version")
async def configuration(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    """Return 200 and the configuration of a model, as of Triton. 404: unknown. 503: without a node."""
    return json_response(model_config(_find(request, model, version), _frontend(request).config.max_instances))


@routes.get(f"{_MODEL}/stats", "v2_statistics")
@routes.get(f"{_VERSION}/stats", "v2_statistics_version")
async def statistics(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    """Return 200 and the statistics of a model. 404: unknown. 503: without a node."""
    return json_response({"model_stats": [model_statistics(_find(request, model, version))]})


@routes.post(f"{_MODEL}/infer", "v2_infer")
@routes.post(f"{_VERSION}/infer", "v2_infer_version")
async def infer(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    """Return 200 and the output tensors for the input tensors of a request, in JSON or binary.

    Raises:
        BadRequest: the body does not fit the model.
        UnsupportedMediaType: the body is an image or a form.
        UnknownModel: the model or the version is not known.
        NotReady: no node takes records.
        ClusterServingError: an error of `respond` or of a row.
    """
    begun_s = perf_counter()
    config = _frontend(request).config
    served = _find(request, model, version)
    served.check_ready()
    check_no_file(request, model)
    node, length = served.job.described, request.headers.get(HEAD_BYTES)

    def read_rows(body: bytes) -> tuple[Asked, Rows]:
        if length == HEADLESS:
            return ASKED, split(read_headless(body, node), node, config.max_instances)
        asked, binary = decode_request(body, length)
        return Asked.of(asked), split(read_tensors(asked.inputs, binary), node, config.max_instances)

    asked, (records, stacked) = await read(request, config.max_body_size, read_rows)
    if asked.timeout_s is not None:
        request.ctx.visit.limit(asked.timeout_s)
    form = Answer(served.name, served.version, asked, node.outputs, stacked, stacked or node.already_batched)
    return await respond(request, served, records, form, begun_s)


async def not_served(why: str, _request: Request, **_arguments: str) -> HTTPResponse:
    """Return 404 and the reason why a route of the protocol's extensions is missing."""
    return json_response({"error": why}, 404)


for number, (path, why) in enumerate(_NOT_SERVED.items()):
    routes.route(path, ("GET", "POST"), f"v2_not_served{number}")(partial(not_served, why))


def _find(request: Request, model: str, version: str | None) -> Served:
    return _frontend(request).models.find(model, version)


def _frontend(request: Request) -> Frontend:
    frontend: Frontend = request.app.ctx.frontend
    return frontend
