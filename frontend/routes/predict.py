"""`/` and `/predict`: the original's API.

POST /predict               to the default job
POST /predict/<job>
{"instances": [{"<input>": VALUE, ...}, ...]}        or a form or an image: see `records.py`

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
from cluster_serving.frontend.errors import STATUS_OF_RECORD, BadRequest
from cluster_serving.frontend.http.body import read
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.metrics.timers import Timer
from cluster_serving.frontend.models.models import Served
from cluster_serving.frontend.routes.routes import Routes
from cluster_serving.frontend.routes.state import Frontend
from cluster_serving.frontend.values.predictions import prediction_text
from cluster_serving.frontend.values.records import read_records

routes = Routes()

_WELCOME = "welcome to analytics zoo web serving frontend"


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
    reader = partial(read_records, request.headers.get("content-type", ""), served.job, config.max_instances)
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
