"""`/v1/models/...`: the REST API of TensorFlow Serving."""

from time import perf_counter

from sanic import HTTPResponse, Request

from cluster_serving.client.protocol.requests import Fields
from cluster_serving.frontend.http.body import check_no_file, read
from cluster_serving.frontend.http.errors import BadRequest, UnknownModel
from cluster_serving.frontend.http.json_body import parse
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.routes.respond import respond
from cluster_serving.frontend.routes.routes import Routes
from cluster_serving.frontend.routes.state import Frontend
from cluster_serving.frontend.v1 import described
from cluster_serving.frontend.v1.requests import Rows, read_examples, read_predict
from cluster_serving.frontend.v1.results import Answer

routes = Routes()

_MODEL = "/v1/models/<model:str>"
_VERSION = _MODEL + "/versions/<version:str>"
_LABEL = _MODEL + "/labels/<label:str>"


@routes.get(_MODEL, "v1_status")
@routes.get(_VERSION, "v1_version_status")
async def status(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    """Return 200 and the state of a version, or of every version of a model. 404: unknown. 503: without a node."""
    frontend: Frontend = request.app.ctx.frontend
    found = frontend.models.find(model, version)
    if version is not None:
        return json_response(described.versions([found]))
    return json_response(described.versions([each for each in frontend.models.all() if each.name == model]))


@routes.get(f"{_MODEL}/metadata", "v1_metadata")
@routes.get(f"{_VERSION}/metadata", "v1_version_metadata")
async def metadata(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    """Return 200 and the inputs and outputs of a model. 404: unknown. 503: no node is ready."""
    frontend: Frontend = request.app.ctx.frontend
    found = frontend.models.find(model, version)
    found.check_ready()
    return json_response(described.metadata(found))


@routes.post(_MODEL, "v1_predict")
@routes.post(_VERSION, "v1_version_predict")
async def predict(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    """Answer predict, classify or regress: the verb behind the last segment of the path, as in `/v1/models/my_model:predict`.

    Returns 200 and rows or columns, as `v1/results.py` makes them.

    Raises:
        BadRequest: the verb is none of the three, or the body does not fit the model.
        UnsupportedMediaType: the body is an image or a form.
        UnknownModel: the model or the version is not known.
        NotReady: no node takes records.
        ClusterServingError: an error of `respond` or of a row.
    """
    if version is None:
        model, _, verb = model.rpartition(":")
    else:
        version, _, verb = version.rpartition(":")
    if not model or verb not in ("predict", "classify", "regress"):
        raise BadRequest("the path of a POST ends in :predict, :classify or :regress, as /v1/models/my_model:predict")
    frontend: Frontend = request.app.ctx.frontend
    served = frontend.models.find(model, version)
    served.check_ready()
    check_no_file(request, model)
    begun_s = perf_counter()

    def read_rows(body: bytes) -> tuple[Rows, list[Fields]]:
        document, most = parse(body), frontend.config.max_instances
        read_body = read_predict if verb == "predict" else read_examples
        rows = read_body(document, served.job, most)
        return rows, rows.records(served.job)

    rows, records = await read(request, frontend.config.max_body_size, read_rows)
    return await respond(request, served, records, Answer(verb, rows.columns, rows.is_batch), begun_s)


@routes.route(_LABEL, ("GET", "POST"), "v1_label")
@routes.route(f"{_LABEL}/metadata", ("GET", "POST"), "v1_label_metadata")
async def refuse_label(_request: Request, model: str, label: str) -> HTTPResponse:
    """Return 404: versions have no labels."""
    raise UnknownModel(f"model not exist. Model Name: {model}, label {label}: versions have numbers here and no labels")
