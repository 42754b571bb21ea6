"""Channel of `bench` over HTTP, against servers that answer as some proxies do."""

import select
import socket
from contextlib import closing

import pytest

from cluster_serving.node.load.channel import Outcome, Request
from cluster_serving.node.load.http import HttpChannel
from cluster_serving.node.load.messages import HttpTarget
from support.http_server import answering

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def asked(channel: HttpChannel, *numbers: int) -> list[Outcome]:
    """Outcomes of requests, sent one after the other."""
    found: list[Outcome] = []
    for number in numbers:
        found += channel.send([Request(number, 1.0)])
        while len(found) <= numbers.index(number):
            assert select.select([channel], [], [], 30)[0]
            found += channel.receive()
    return found


def channel(url: str) -> HttpChannel:
    return HttpChannel(HttpTarget(url, "/predict", None, [b"{}"]))


@pytest.mark.parametrize(
    ("parts", "code", "message"),
    [
        ([OK], "", ""),
        ([OK[:20], OK[20:]], "", ""),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", b"0\r\n\r\n"], "", ""),
        ([b'HTTP/1.1 503 No\r\nContent-Length: 16\r\n\r\n{"error": "why"}'], "HTTP 503", "why"),
        ([b"HTTP/1.1 502 Bad\r\nContent-Length: 5\r\n\r\n<html"], "HTTP 502", "<html"),
        ([b"-ERR unknown command\r\n\r\n"], "ConnectionLost", "the answer is no HTTP/1.1"),
        ([], "ConnectionLost", "closed by the frontend"),
    ],
)
def test_an_answer_becomes_an_outcome(parts: list[bytes], code: str, message: str) -> None:
    with answering(parts) as url, closing(channel(url)) as sending:
        (found,) = asked(sending, 7)

    assert (found.number, found.code, found.message) == (7, code, message)


def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    closes = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")

    with answering([closes], [OK]) as url, closing(channel(url)) as sending:
        found = asked(sending, 0, 1)

    assert [each.code for each in found] == ["", ""]


def test_a_request_that_is_given_up_closes_its_connection() -> None:
    with answering([b"HTTP/1.1 200 OK\r\n"], [OK]) as url, closing(channel(url)) as sending:
        assert sending.send([Request(0, 1.0)]) == []
        sending.give_up(0)

        (found,) = asked(sending, 1)

    assert (found.number, found.code) == (1, "")


def test_no_server_is_a_failed_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    with closing(channel(url)) as sending:
        (found,) = asked(sending, 0)

    assert found.code == "ConnectionLost"
    assert "refused" in found.message


def test_user_and_password_of_the_url_are_no_part_of_the_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        with closing(channel(f"http://user:s3cret@{place}")) as sending:
            sending.send([Request(0, 1.0)])
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(30)
                head = connection.recv(1 << 16)

    assert f"\r\nHost: {place}\r\n".encode() in head
    assert b"\r\nAuthorization: Basic dXNlcjpzM2NyZXQ=\r\n" in head
