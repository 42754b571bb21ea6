"""`/openapi.json`: description of the API for programs. `/docs`: the same for people.

The page is Swagger UI out of the package swagger-ui-py. It comes from this server whole, and loads nothing from elsewhere.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from sanic import HTTPResponse, Request
from sanic.response import redirect

import cluster_serving
from cluster_serving.client.extras import install_command
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.routes.routes import Routes

routes = Routes()

_DOCUMENT = Path(__file__).with_name("openapi.yaml")
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Cluster Serving</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
# A file of its own, because the policy below forbids scripts in the page.
_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true});\n'
_TYPES = {
    "start.js": "text/javascript; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "favicon-32x32.png": "image/png",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document of `openapi.yaml`, without the address of the server."""
    found: dict[str, Any] = yaml.safe_load(_DOCUMENT.read_text())
    found["info"]["version"] = cluster_serving.__version__
    return found


@routes.get("/openapi.json", "openapi", is_open=True)
async def openapi(request: Request) -> HTTPResponse:
    """Return 200 and the OpenAPI document with the address by which the client has come, to a proxy with TLS perhaps."""
    # Of several proxies the first.
    told = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    scheme = told if told in ("http", "https") else request.scheme
    return json_response({**document(), "servers": [{"url": f"{scheme}://{request.host}"}]})


@routes.get("/docs", "docs", is_open=True)
async def page(request: Request) -> HTTPResponse:
    """Return 200 and the page, or for `/docs/` 302 to `/docs`."""
    if request.path.endswith("/"):
        return redirect("../docs")  # the page's links are relative to the page: a proxy may put the page under a prefix
    return HTTPResponse(_PAGE, headers=_HEADERS, content_type="text/html; charset=utf-8")


@routes.get("/docs/<file:str>", "docs_file", is_open=True)
async def page_file(_request: Request, file: str) -> HTTPResponse:
    """Return 200 and a file that the page loads, or 404 for any other name."""
    if file not in _TYPES:
        return json_response({"error": f"/docs has no such file; it has {', '.join(_TYPES)}"}, 404)
    headers = {**_HEADERS, "Cache-Control": "max-age=3600"}
    return HTTPResponse(_content(file), headers=headers, content_type=_TYPES[file])


@cache
def _content(file: str) -> bytes:
    if file == "start.js":
        return _START.encode()
    # The package swagger-ui-py is not imported, because only its files are needed.
    spec = find_spec("swagger_ui")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"/docs needs swagger-ui-py; run: {install_command('http')}")
    return (Path(spec.submodule_search_locations[0]) / "static" / file).read_bytes()
