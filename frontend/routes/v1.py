"""`/v1/models/...`: the REST API of TensorFlow Serving."""

from functools import partial
from time import perf_counter
from typing import Any
from urllib.parse import unquote

from sanic import HTTPResponse, Request, Sanic

from cluster_serving.client.protocol.requests import Fields
from cluster_serving.frontend.errors import BadRequest, UnknownModel
from cluster_serving.frontend.http.body import read
from cluster_serving.frontend.http.json_body import parse, write
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.metrics.timers import Timer
from cluster_serving.frontend.models.results import check_all
from cluster_serving.frontend.routes.gate import route
from cluster_serving.frontend.routes.state import Frontend
from cluster_serving.frontend.v1 import described, results
from cluster_serving.frontend.v1.requests import read_examples, read_predict

_MODEL = "/v1/models/<model:str>"
_VERSION = _MODEL + "/versions/<version:str>"
_LABEL = _MODEL + "/labels/<label:str>"


def add(app: Sanic[Any, Any]) -> None:
    """Add the routes. A verb is part of the last segment of the path: `/v1/models/my_model:predict`."""
    route(app, _MODEL, ["GET"], _status, name="v1_status")
    route(app, _MODEL, ["POST"], _of_model, name="v1_predict")
    route(app, _MODEL + "/metadata", ["GET"], _metadata, name="v1_metadata")
    route(app, _VERSION, ["GET"], _status, name="v1_version_status")
    route(app, _VERSION, ["POST"], _of_version, name="v1_version_predict")
    route(app, _VERSION + "/metadata", ["GET"], _metadata, name="v1_version_metadata")
    for tail, name in (("", "v1_label"), ("/metadata", "v1_label_metadata")):
        route(app, _LABEL + tail, ["GET", "POST"], _label, name=name)


async def _status(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    frontend: Frontend = request.app.ctx.frontend
    name = unquote(model)
    found = frontend.models.find(name, unquote(version) if version else None)
    if version is not None:
        return json_response(described.versions([found]))
    return json_response(described.versions([each for each in frontend.models.all() if each.name == name]))


async def _metadata(request: Request, model: str, version: str | None = None) -> HTTPResponse:
    frontend: Frontend = request.app.ctx.frontend
    found = frontend.models.find(unquote(model), unquote(version) if version else None)
    found.check_ready()
    return json_response(described.metadata(found))


async def _label(_request: Request, model: str, label: str) -> HTTPResponse:
    raise UnknownModel(
        f"model not exist. Model Name: {unquote(model)}, label {unquote(label)}: versions have numbers here and no labels"
    )


async def _of_model(request: Request, model: str) -> HTTPResponse:
    name, _, verb = unquote(model).rpartition(":")
    return await _answered(request, name, None, verb)


async def _of_version(request: Request, model: str, version: str) -> HTTPResponse:
    number, _, verb = unquote(version).rpartition(":")
    return await _answered(request, unquote(model), number, verb)


async def _answered(request: Request, name: str, version: str | None, verb: str) -> HTTPResponse:
    """Answer predict, classify or regress."""
    frontend: Frontend = request.app.ctx.frontend
    if not name or verb not in ("predict", "classify", "regress"):
        raise BadRequest("the path of a POST ends in :predict, :classify or :regress, as /v1/models/my_model:predict")
    served = frontend.models.find(name, version)
    served.check_ready()
    begun_s = perf_counter()
    reader = partial(_read, verb, served.job, frontend.config.max_instances)
    columns, records = await read(request, frontend.config.max_body_size, reader)
    frontend.timers.observe(Timer.MAKE_RECORDS, perf_counter() - begun_s)
    found = await served.predict(records, request)
    predicted_s = perf_counter()
    check_all(found)
    document = _MAKERS[verb, columns](found, served.job.described.already_batched)
    response = HTTPResponse(write(document), content_type="application/json")
    ended_s = perf_counter()
    frontend.timers.observe(Timer.MAKE_RESPONSE, ended_s - predicted_s)
    frontend.timers.observe(Timer.PREDICT, ended_s - begun_s)
    return response


def _read(verb: str, job: Job, most: int, body: bytes) -> tuple[bool, list[Fields]]:
    """Return whether the rows came as columns, and the records of the rows."""
    document = parse(body)
    rows = read_predict(document, job, most) if verb == "predict" else read_examples(document, most)
    return rows.columns, rows.records(job)


_MAKERS = {
    ("predict", False): results.predictions,
    ("predict", True): results.outputs,
    ("classify", False): results.classes,
    ("regress", False): results.numbers,
}
