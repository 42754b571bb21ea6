"""`/` and `/predict`: the original's API.

POST /predict               to the default job
POST /predict/<job>
{"instances": [{"<input>": VALUE, ...}, ...]}        or a form or an image: see `json_values.py` and `uploads.py`

{"predictions": ["...", ...]}                        in order: see `predictions.py`
{"predictions": [...], "errors": [{"index": 1, "code": "...", "message": "..."}]}        some instances failed
"""

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any

from sanic import HTTPResponse, Request
from sanic.response import text

from cluster_serving.client.wire.result import Result
from cluster_serving.frontend.errors import STATUS_OF_RECORD, BadRequest, UnsupportedMediaType
from cluster_serving.frontend.http.body import read
from cluster_serving.frontend.http.json_body import parse
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.metrics.timers import Timer
from cluster_serving.frontend.models.models import Served
from cluster_serving.frontend.routes.routes import Routes
from cluster_serving.frontend.routes.state import Frontend
from cluster_serving.frontend.values.instances import encode_instance
from cluster_serving.frontend.values.json_values import Fields
from cluster_serving.frontend.values.predictions import prediction_text
from cluster_serving.frontend.values.uploads import form_instances, image_instances

routes = Routes()

_WELCOME = "welcome to analytics zoo web serving frontend"
_NO_INSTANCE = "no instance can be found, please check your input or json(keyword should be 'instances')"


@routes.route("/", ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"), "welcome", is_open=True)
async def welcome(_request: Request) -> HTTPResponse:
    """Return 200 and the original's greeting, which its client looks for."""
    return text(_WELCOME)


@routes.post("/predict", "predict")
@routes.post("/predict/<job:str>", "predict_job")
async def predict(request: Request, job: str | None = None) -> HTTPResponse:
    """Return the predictions of a job, or of the default job: see `answer`."""
    frontend: Frontend = request.app.ctx.frontend
    return await answer(frontend.models.find(job), request)


async def answer(served: Served, request: Request) -> HTTPResponse:
    """Return the predictions for the instances of a request.

    Raises:
        BadRequest: the instances do not fit the model.
        NotReady: no node takes records.
        ClusterServingError: an error of `Served.predict`.
    """
    frontend: Frontend = request.app.ctx.frontend
    config = frontend.config
    served.check_ready()
    begun_s = perf_counter()
    reader = partial(_read, request.headers.get("content-type", ""), served.job, config.max_instances)
    try:
        records = await read(request, config.max_body_size, reader)
    except BadRequest as error:
        raise BadRequest(_wrong(str(error))) from error
    frontend.timers.observe(Timer.MAKE_RECORDS, perf_counter() - begun_s)
    results = await served.predict(records, request)
    predicted_s = perf_counter()
    response = _response(results)
    ended_s = perf_counter()
    frontend.timers.observe(Timer.MAKE_RESPONSE, ended_s - predicted_s)
    frontend.timers.observe(Timer.PREDICT, ended_s - begun_s)
    return response


def _read(content_type: str, job: Job, most: int, body: bytes) -> list[Fields]:
    """Return a record for each instance in a body."""
    kind = content_type.partition(";")[0].strip().lower()
    instances: Any  # in JSON, a value of any type can stand in the place of the instances
    if kind == "multipart/form-data":
        instances = form_instances(body, content_type, job)
    elif kind.startswith("image/"):
        instances = image_instances(body)
    elif kind == "application/octet-stream":
        raise UnsupportedMediaType(
            "a body of application/octet-stream is not read: send JSON, multipart/form-data, or an image as image/jpeg, "
            "image/png, ..."
        )
    else:
        document = parse(body)
        instances = document.get("instances") if isinstance(document, dict) else None
    if not isinstance(instances, list) or not instances:
        raise BadRequest(_NO_INSTANCE)
    if len(instances) > most:
        raise BadRequest(f"the request has {len(instances)} instances; at most {most} are taken (maxInstances)")
    records: list[Fields] = []
    for index, instance in enumerate(instances):
        try:
            records.append(encode_instance(instance, job))
        except BadRequest as error:
            raise BadRequest(f"instances[{index}]: {error}") from error
    return records


def _response(results: Sequence[Result]) -> HTTPResponse:
    errors: list[dict[str, Any]] = [
        {"index": index, "code": result.error[0], "message": result.error[1]}
        for index, result in enumerate(results)
        if result.error is not None
    ]
    if len(errors) == len(results):
        # All instances failed, and the first error stands for all.
        first = errors[0]
        status = STATUS_OF_RECORD.get(first["code"], 500)
        message = f"instances[{first['index']}]: {first['message']}"
        return json_response({"error": _wrong(message) if status == 400 else message, "errors": errors}, status)
    document: dict[str, Any] = {"predictions": [prediction_text(result) for result in results]}
    if errors:
        document["errors"] = errors
    return json_response(document)


def _wrong(details: str) -> str:
    return f"Wrong content format.\nDetails: {details}"
