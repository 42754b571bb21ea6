"""Responses of JSON: what goes over the wire."""

import pytest
from sanic.headers import format_http1_response

from cluster_serving.frontend.http.responses import JsonResponse, json_response


@pytest.mark.parametrize("status", [200, 404, 429, 503])
def test_a_message_is_what_sanic_would_send(status: int) -> None:
    response = json_response({"a": [1, None, "ä"]}, status)
    response.headers["X-Request-ID"] = "r"
    response.headers["Retry-After"] = 3  # Sanic takes numbers too
    assert isinstance(response, JsonResponse)
    message = response.message(keep_alive=False)

    body = '{"a":[1,null,"ä"]}'.encode()
    response.headers["content-length"] = len(body)
    response.headers["connection"] = "close"
    head = format_http1_response(status, response.processed_headers)
    first, *lines = message.removesuffix(b"\r\n\r\n" + body).split(b"\r\n")
    assert message.endswith(b"\r\n\r\n" + body)
    assert first == head.split(b"\r\n")[0]
    assert sorted(lines) == sorted(head.split(b"\r\n")[1:-2])


def test_a_connection_that_stays_is_told_so() -> None:
    response = json_response({})

    assert isinstance(response, JsonResponse)
    assert b"\r\nconnection: keep-alive\r\n" in response.message(keep_alive=True)
