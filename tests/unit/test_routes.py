"""Routes as handlers are registered, and errors as they are answered."""

from typing import Any

import pytest
import structlog
from sanic import HTTPResponse, Request, Sanic

from cluster_serving.client.errors import ClusterServingError, ConnectionLost, ResultTimeout
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.frontend.http.errors import BadRequest, Limited, NotReady, Overloaded, Unauthorized
from cluster_serving.frontend.routes.errors import Troubles, error_response
from cluster_serving.frontend.routes.routes import Routes


def test_a_handler_of_two_paths() -> None:
    routes = Routes()

    @routes.get("/a/<name:str>", "short")
    @routes.get("/a/<name:str>/b/<version:str>", "long")
    async def handler(_request: Request, **_arguments: str) -> HTTPResponse:
        return HTTPResponse()

    app: Sanic[Any, Any] = Sanic("routes")
    routes.add(app)
    app.finalize()

    assert {route.name: set(route.methods) for route in app.router.routes} == {
        "routes.short": {"GET", "HEAD"},
        "routes.long": {"GET", "HEAD"},
    }
    assert app.router.get("/a/b%20%2F%C3%A4", "GET", None)[2] == {"name": "b /ä"}
    assert app.router.get("/a/x/b/%31", "HEAD", None)[2] == {"name": "x", "version": "1"}


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (BadRequest("no"), 400, {}),
        (Unauthorized("no"), 401, {"WWW-Authenticate": "Bearer"}),
        (Limited("no", 3), 429, {"Retry-After": "3"}),
        (Overloaded("no", 20), 429, {"Retry-After": "20"}),
        (NotReady("no"), 503, {"Retry-After": "1"}),
        (ResultTimeout("no"), 504, {}),
    ],
)
def test_errors_say_when_to_try_again(error: ClusterServingError, status: int, headers: dict[str, str]) -> None:
    response = error_response(error)

    assert (response.status, response.body, dict(response.headers)) == (status, b'{"error":"no"}', headers)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionLost("Redis at redis+sentinel://10.0.0.1:1/m/0: gone"), "Redis cannot be reached or cannot serve"),
        (RedisRefused("MOVED 7 10.0.0.1:6379"), "Redis has refused the request"),
    ],
)
def test_no_error_tells_a_caller_where_redis_is(error: ClusterServingError, text: str) -> None:
    with structlog.testing.capture_logs() as logs:
        Troubles().tell(error)
    response = error_response(error)

    assert response.body == f'{{"error":"{text}; the log of the frontend says why"}}'.encode()
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert "10.0.0.1" in logs[0]["reason"]


def test_troubles_are_a_line_a_second() -> None:
    troubles = Troubles()
    with structlog.testing.capture_logs() as logs:
        for _ in range(100):
            troubles.tell(ConnectionLost("gone"))

    assert [line["requests"] for line in logs] == [1]


def test_the_status_without_a_token_may_be_chosen() -> None:
    assert error_response(Limited("no", 3), 500).status == 500
