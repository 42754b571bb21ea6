"""Response to a request for predictions, from its records on: the answer itself, or the place of an answer that comes later."""

from collections.abc import Sequence
from time import perf_counter

from sanic import HTTPResponse, Request

from cluster_serving.client.protocol.requests import Fields
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.metrics.timers import Timer
from cluster_serving.frontend.models.models import Served
from cluster_serving.frontend.routes.forms import Form, encode_form
from cluster_serving.frontend.routes.state import Frontend


async def respond(
    request: Request, served: Served, records: Sequence[Fields], form: Form, begun_s: float
) -> HTTPResponse:
    """Return the answer of a model, or 202 and the place of the answer if the request wants the answer later.

    Args:
        request: the request.
        served: the model.
        records: input fields of each record.
        form: form of the answer.
        begun_s: time at which the records were begun to be made, of `perf_counter`.

    Raises:
        ClusterServingError: an error of `Served.predict`, of `Served.accept`, or of a row.
    """
    frontend: Frontend = request.app.ctx.frontend
    timers, visit = frontend.timers, request.ctx.visit
    timers.observe(Timer.MAKE_RECORDS, perf_counter() - begun_s)
    if visit.is_later:
        call = await served.accept(records, encode_form(form), visit)
        accepted = json_response({"id": str(call), "state": "waiting"}, 202)
        accepted.headers.update({"Location": call.path, "Preference-Applied": "respond-async"})
        return accepted
    results = await served.predict(records, visit)
    predicted_s = perf_counter()
    response = form.response(results, request.headers.get("accept-encoding", ""))
    ended_s = perf_counter()
    timers.observe(Timer.MAKE_RESPONSE, ended_s - predicted_s)
    timers.observe(Timer.PREDICT, ended_s - begun_s)
    return response
