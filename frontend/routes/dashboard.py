"""`/dashboard`: a page for people with rates, latencies, backlog, nodes, and what limits each job.

The page and its files are open. The figures are not: where callers need an API key, the page asks for it.
"""

import msgspec
from sanic import HTTPResponse, Request
from sanic.response import redirect

from cluster_serving.frontend.dashboard.files import HEADERS, PAGE, files
from cluster_serving.frontend.dashboard.history import points_since
from cluster_serving.frontend.dashboard.view import frontend_view, job_views
from cluster_serving.frontend.errors import BadRequest
from cluster_serving.frontend.http.compression import deflate
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.routes.routes import Routes
from cluster_serving.frontend.routes.state import Frontend

routes = Routes()

_SINCE = "since"


@routes.get("/dashboard", "dashboard", is_open=True)
async def page(request: Request) -> HTTPResponse:
    """Return 200 and the page, or for `/dashboard/` 302 to `/dashboard`."""
    if request.path.endswith("/"):
        return redirect(
            "../dashboard"
        )  # the page's links are relative to the page: a proxy may put the page under a prefix
    return _file(request, PAGE)


@routes.get("/dashboard/static/<file:str>", "dashboard_file", is_open=True)
async def page_file(request: Request, file: str) -> HTTPResponse:
    """Return 200 and a file that the page loads, 304 if the browser has it, or 404 for any other name."""
    if file not in files():
        return json_response({"error": f"/dashboard/static has no such file; it has {', '.join(sorted(files()))}"}, 404)
    return _file(request, file)


@routes.get("/dashboard/data", "dashboard_data", is_limited=False)
async def data(request: Request) -> HTTPResponse:
    """Return 200 and the figures of all jobs, with the points of the history of `?model=` after `?since=`, Unix time in ms.

    Raises:
        BadRequest: `since` is no number.
    """
    frontend: Frontend = request.app.ctx.frontend
    since = request.args.get(_SINCE, "0")
    if not (since.isascii() and since.isdigit() and len(since) < 16):
        raise BadRequest(f"{_SINCE} is a Unix time in ms, not {since[:40]!r}")
    models = {served.name: served for served in frontend.models.all()}  # of several versions the last
    chosen = models.get(request.args.get("model", ""))
    document = {
        "frontend": frontend_view(frontend.models, frontend.all_timers.read(), frontend.config.job_name),
        "jobs": job_views(models.values()),
        "history": await points_since(chosen, int(since)) if chosen is not None else [],
    }
    return _compressed(request, msgspec.json.encode(document), "application/json", {"Cache-Control": "no-store"})


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
