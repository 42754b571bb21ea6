"""`/` and `/predict`: the original's API.

POST /predict               to the default job
POST /predict/<job>
{"instances": [{"<input>": VALUE, ...}, ...]}        or a form or an image: see `records.py`

{"predictions": ["...", ...]}                        in order: see `predictions.py`
{"predictions": [...], "errors": [{"index": 1, "code": "...", "message": "..."}]}        some instances failed
"""

from functools import partial
from time import perf_counter

from sanic import HTTPResponse, Request
from sanic.response import text

from cluster_serving.frontend.http.body import read
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.models.models import Served
from cluster_serving.frontend.routes.respond import respond
from cluster_serving.frontend.routes.routes import Routes
from cluster_serving.frontend.routes.state import Frontend
from cluster_serving.frontend.values.predictions import Predictions, wrong
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
        ClusterServingError: an error of `respond`.
    """
    frontend: Frontend = request.app.ctx.frontend
    config = frontend.config
    served.check_ready()
    begun_s = perf_counter()
    reader = partial(read_records, request.headers.get("content-type", ""), served.job, config.max_instances)
    try:
        records = await read(request, config.max_body_size, reader)
    except BadRequest as error:
        raise BadRequest(wrong(str(error))) from error
    return await respond(request, served, records, Predictions(), begun_s)
