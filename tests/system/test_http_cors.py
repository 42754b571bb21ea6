"""Pages of other origins: refused by browsers unless `corsOrigins` names them."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

from support.private_redis import PrivateRedis
from support.running_frontend import RunningFrontend, running_frontend

OURS, OTHERS = "https://app.example", "https://evil.example"
ALLOWED = "Access-Control-Allow-Origin"


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory, redis_server: PrivateRedis) -> Iterator[RunningFrontend]:
    with running_frontend(tmp_path_factory.mktemp("cors"), redis_server, corsOrigins=[OURS]) as frontend:
        yield frontend


def call(frontend: RunningFrontend, path: str, method: str, **headers: str) -> tuple[int, Message]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(frontend.url + path, None, named, method=method)  # noqa: S310 - our own http URL
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return response.status, response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def test_an_origin_that_is_named_may_ask_and_read(frontend: RunningFrontend) -> None:
    status, headers = call(frontend, "/predict", "OPTIONS", Origin=OURS, Access_Control_Request_Method="POST")

    assert status == 204
    assert headers[ALLOWED] == OURS
    assert "POST" in headers["Access-Control-Allow-Methods"]
    assert {"Content-Encoding", "Content-Type", "X-API-Key"} <= {*headers["Access-Control-Allow-Headers"].split(", ")}
    for path, found in (("/livez", 200), ("/v1/models/nothing", 404), ("/nowhere", 404)):
        status, headers = call(frontend, path, "GET", Origin=OURS)
        assert (status, headers[ALLOWED], headers["Vary"]) == (found, OURS, "Origin")


def test_another_origin_may_not(frontend: RunningFrontend) -> None:
    status, headers = call(frontend, "/predict", "OPTIONS", Origin=OTHERS, Access_Control_Request_Method="POST")

    assert (status, headers[ALLOWED]) == (405, None)
    assert call(frontend, "/livez", "GET", Origin=OTHERS)[1][ALLOWED] is None
    assert call(frontend, "/livez", "GET")[1][ALLOWED] is None


def test_nobody_may_by_default(tmp_path: Path, redis_server: PrivateRedis) -> None:
    with running_frontend(tmp_path, redis_server) as frontend:
        assert call(frontend, "/livez", "GET", Origin=OURS)[1][ALLOWED] is None


def test_everybody_may_if_that_is_said(tmp_path: Path, redis_server: PrivateRedis) -> None:
    """The origin that a request names may be anything, and is not repeated in the answer."""
    with running_frontend(tmp_path, redis_server, corsOrigins="*") as frontend:
        assert call(frontend, "/livez", "GET", Origin=OTHERS)[1][ALLOWED] == "*"
        assert call(frontend, "/livez", "GET")[1][ALLOWED] is None
