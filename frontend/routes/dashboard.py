"""`/dashboard`: a page for people with rates, latencies, backlog, nodes, and what limits each job.

The page and its files are open. The figures are not: where callers need an API key, the page asks for it.
"""

import re
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeVar

import msgspec
from sanic import HTTPResponse, Request
from sanic.response import redirect

from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.frontend.dashboard.dead_letters import delete, newest, replay
from cluster_serving.frontend.dashboard.files import HEADERS, PAGE, files
from cluster_serving.frontend.dashboard.history import decisions, points_since
from cluster_serving.frontend.dashboard.slow_records import slow_records
from cluster_serving.frontend.dashboard.view import frontend_view, job_view
from cluster_serving.frontend.http.body import read
from cluster_serving.frontend.http.compression import deflate
from cluster_serving.frontend.http.errors import BadRequest, Forbidden
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.models.models import Served
from cluster_serving.frontend.routes.routes import Routes
from cluster_serving.frontend.routes.state import Frontend

routes = Routes()

Found = TypeVar("Found")
_SINCE = "since"
_OWN = "X-Cluster-Serving"
_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})", re.ASCII)
_MAX_PART = (1 << 64) - 1
_MOST_IDS = 1000


@routes.get("/dashboard", "dashboard", is_open=True)
async def page(request: Request) -> HTTPResponse:
    """Return 200 and the page, or for `/dashboard/` 302 to `/dashboard`."""
    if request.path.endswith("/"):
        # The page's links are relative to the page, because a proxy may put the page under a prefix.
        return redirect("../dashboard")
    return _file(request, PAGE)


@routes.get("/dashboard/static/<file:str>", "dashboard_file", is_open=True)
async def page_file(request: Request, file: str) -> HTTPResponse:
    """Return 200 and a file that the page loads, 304 if the browser has it, or 404 for any other name."""
    if file not in files():
        return json_response({"error": f"/dashboard/static has no such file; it has {', '.join(sorted(files()))}"}, 404)
    return _file(request, file)


@routes.get("/dashboard/data", "dashboard_data", is_limited=False)
async def data(request: Request) -> HTTPResponse:
    """Return 200 and the figures of all jobs, the slowest records of `?model=`, and its history after `?since=`, Unix time in ms.

    Raises:
        BadRequest: `since` is no number.
    """
    frontend: Frontend = request.app.ctx.frontend
    since = request.args.get(_SINCE, "0")
    if not (since.isascii() and since.isdigit() and len(since) < 16):
        raise BadRequest(f"{_SINCE} is a Unix time in ms, not {since[:40]!r}")
    models = {served.name: served for served in frontend.models.all()}  # of several versions the last
    chosen = models.get(request.args.get("model", ""))
    history: list[dict[str, Any]] = []
    decided: list[dict[str, Any]] = []
    slow: list[dict[str, Any]] = []
    if chosen is not None:
        with suppress(ConnectionLost):  # the page keeps its points, and `frontend_view` names the Redis
            history, decided = await points_since(chosen, int(since)), await decisions(chosen)
            slow = await slow_records(chosen)
    document = {
        "frontend": frontend_view(frontend.models, frontend.all_timers.read(), frontend.config.job_name),
        "jobs": [job_view(served) for served in models.values()],
        "history": history,
        "decisions": decided,
        "slow": slow,
    }
    return _compressed(request, msgspec.json.encode(document), "application/json", {"Cache-Control": "no-store"})


@routes.get("/dashboard/dead-letters", "dashboard_dead_letters", is_limited=False)
async def letters(request: Request) -> HTTPResponse:
    """Return 200 and the newest dead letters of `?model=`, of those before the id `?before=`. Contents of records are left out.

    Raises:
        BadRequest: `before` is no id.
        UnknownModel: no node serves the model.
        Forbidden: Redis does not let the frontend read dead letters.
    """
    frontend: Frontend = request.app.ctx.frontend
    before = request.args.get("before", "")
    if before:
        _check_ids([before])
    found = await _permitted(newest(frontend.models.find(request.args.get("model")), before))
    return _compressed(request, msgspec.json.encode(found), "application/json", {"Cache-Control": "no-store"})


@routes.post("/dashboard/dead-letters/replay", "dashboard_replay")
async def replay_letters(request: Request) -> HTTPResponse:
    """Put dead letters back into the queue, and return 200 with their number: see `replay`.

    Raises:
        BadRequest: the body is no `_Chosen`.
        UnknownModel: no node serves the model.
        Forbidden: the request comes from a page of another site, or Redis does not let the frontend put letters back.
    """
    served, ids = await _chosen(request)
    return json_response(await _permitted(replay(served, ids)))


@routes.post("/dashboard/dead-letters/delete", "dashboard_delete")
async def delete_letters(request: Request) -> HTTPResponse:
    """Delete dead letters for ever, and return 200 with their number: see `delete`.

    Raises:
        BadRequest: the body is no `_Chosen`.
        UnknownModel: no node serves the model.
        Forbidden: the request comes from a page of another site, or Redis does not let the frontend delete letters.
    """
    served, ids = await _chosen(request)
    return json_response(await _permitted(delete(served, ids)))


class _Chosen(msgspec.Struct):
    """Body of a request about dead letters: the model, and the ids of the letters."""

    model: str
    ids: Annotated[list[str], msgspec.Meta(min_length=1, max_length=_MOST_IDS)]


async def _chosen(request: Request) -> tuple[Served, list[str]]:
    """Return the model and the ids that a request names.

    A form of another site cannot send the header, and a script of another site may not without a preflight, which is refused.
    """
    frontend: Frontend = request.app.ctx.frontend
    if _OWN not in request.headers:
        raise Forbidden(
            f"dead letters are changed by requests with the header {_OWN}, which pages of other sites cannot send"
        )

    def reader(body: bytes) -> _Chosen:
        return msgspec.json.decode(body, type=_Chosen)

    try:
        chosen = await read(request, frontend.config.max_body_size, reader)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f'the body is not {{"model": "iris", "ids": ["1763657000000-0"]}}: {error}') from error
    _check_ids(chosen.ids)
    return frontend.models.find(chosen.model), chosen.ids


def _check_ids(ids: Sequence[str]) -> None:
    for letter_id in ids:
        match = _ID.fullmatch(letter_id)
        if not match or not 0 < max(map(int, match.groups())) <= _MAX_PART:
            raise BadRequest(f"the id of a dead letter is such as 1763657000000-0, not {letter_id[:40]!r}")


async def _permitted(asked: Coroutine[Any, Any, Found]) -> Found:
    try:
        return await asked
    except RedisRefused as error:
        if not str(error).startswith("NOPERM"):
            raise
        raise Forbidden(
            "the Redis user of the frontend has no right to dead letters; docs/how-to/dashboard.md has the rights"
        ) from error


def _file(request: Request, name: str) -> HTTPResponse:
    content, kind, tag = files()[name]
    headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return HTTPResponse(status=304, headers=headers)
    return _compressed(request, content, kind, headers)


def _compressed(request: Request, content: bytes, kind: str, headers: dict[str, str]) -> HTTPResponse:
    body, encoding = deflate(content, request.headers.get("accept-encoding", ""))
    if encoding:
        headers["Content-Encoding"] = encoding
    return HTTPResponse(body, headers={**headers, "Vary": "Accept-Encoding"}, content_type=kind)
