"""`/results`: answers that are fetched later.

POST <any route of predictions> with Prefer: respond-async, or ?async=1
    202   {"id": "...", "state": "waiting"}, and Location: /results/<id>
GET /results/<id>
    202   {"id": "...", "state": "waiting", "place": 17, "expected_s": 0.4, "expires": 1763660600}, or "state": "running"
    else  the answer, as the route would have answered at once: body, status, error
DELETE /results/<id>
    200   {"id": "...", "cancelled": 1}: the records that no node had begun
"""

import math
from typing import Any

from sanic import HTTPResponse, Request

from cluster_serving.client.errors import ClusterServingError
from cluster_serving.frontend.http.errors import BadRequest, UnknownResult
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.models.later.kept import Kept
from cluster_serving.frontend.models.registry import Registry
from cluster_serving.frontend.routes.errors import error_response
from cluster_serving.frontend.routes.forms import Form, decode_form
from cluster_serving.frontend.routes.routes import Routes
from cluster_serving.frontend.routes.state import Frontend

routes = Routes()


@routes.get("/results", "results")
async def results(request: Request) -> HTTPResponse:
    """Return 200 and the calls of the caller's API key, the newest first. 404: there are no API keys."""
    frontend: Frontend = request.app.ctx.frontend
    if frontend.api_keys is None:
        raise UnknownResult(
            "without API keys (apiKeysFile) there is no list: it would show every caller the ids of all"
        )
    return json_response([_described(kept) for kept in await frontend.models.kept_of(request.ctx.visit.api_key)])


@routes.get("/results/<call:str>", "result")
async def result(request: Request, call: str) -> HTTPResponse:
    """Return the answer to a call, or 202 and its state. `?wait=` waits for the answer, in seconds, at most `requestTimeout`.

    Raises:
        BadRequest: `wait` is not a number of seconds.
        UnknownResult: no call of this API key has the id, or its time is over.
        ClusterServingError: the error of the call.
    """
    frontend: Frontend = request.app.ctx.frontend
    visit, models = request.ctx.visit, frontend.models
    wait_s = min(_wait_s(request), visit.timeout_s)
    backend, kept = await models.kept(call, visit.api_key)
    if wait_s and not kept.is_done:
        await backend.later.watch.wait(kept.call.key, wait_s)
        backend, kept = await models.kept(call, visit.api_key)
    if not kept.is_done:
        return _pending(kept, backend.registry)
    form: Form = decode_form(kept.form)
    return form.response(kept.results(), request.headers.get("accept-encoding", ""))


@routes.route("/results/<call:str>", ("DELETE",), "result_delete")
async def delete(request: Request, call: str) -> HTTPResponse:
    """Forget a call, and cancel its records that no node has begun. Return 200 and their number. 404: unknown."""
    frontend: Frontend = request.app.ctx.frontend
    backend, kept = await frontend.models.kept(call, request.ctx.visit.api_key)
    return json_response({"id": str(kept.call), "cancelled": await backend.later.give_up(kept)})


def answer(kept: Kept) -> HTTPResponse:
    """Return the answer to a call that is done, for a caller that did not ask now. An error of the call is a response too."""
    form: Form = decode_form(kept.form)
    try:
        return form.response(kept.results(), "")
    except ClusterServingError as error:
        return error_response(error)


def _pending(kept: Kept, registry: Registry) -> HTTPResponse:
    document = _described(kept)
    if kept.place:
        document["place"] = kept.place
    expected_s = registry.time_s(kept.call.job, kept.place + kept.records)
    if expected_s is not None:
        document["expected_s"] = round(expected_s, 3)
    response = json_response(document, 202)
    response.headers["Retry-After"] = str(math.ceil(min(expected_s or 1, 60)))
    return response


def _described(kept: Kept) -> dict[str, Any]:
    return {"id": str(kept.call), "state": kept.state, "expires": kept.expires_s}


def _wait_s(request: Request) -> float:
    asked = request.args.get("wait", "0")
    try:
        wait_s = float(asked)
    except ValueError:
        wait_s = -1
    if not 0 <= wait_s < math.inf:
        raise BadRequest(f"wait is a number of seconds, 0 or more, not {asked[:40]!r}")
    return wait_s
