"""Connections: how long they are held by clients that do not send, do not read, or send what nobody wants."""

import http.client
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from support.certificates import PASSWORD, write_certificates
from support.private_redis import PrivateRedis, free_port
from support.running_frontend import RunningFrontend, running_frontend
from support.wait import wait_until

HEAD = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
TOO_LARGE = 30_000_000


@pytest.fixture(scope="module")
def frontend(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFrontend]:
    home = tmp_path_factory.mktemp("frontend")
    with running_frontend(home, redis_server, requestTimeout=1, maxBodySize="64k") as frontend:
        yield frontend


@pytest.fixture(scope="module")
def patient_frontend(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFrontend]:
    """For requests in parts, between which a busy machine may stop the client."""
    with running_frontend(tmp_path_factory.mktemp("patient_frontend"), redis_server) as frontend:
        yield frontend


def connect(frontend: RunningFrontend) -> socket.socket:
    return socket.create_connection(("127.0.0.1", frontend.port), timeout=20)


def read_all(connection: socket.socket) -> bytes:
    chunks = []
    while chunk := connection.recv(1 << 16):
        chunks.append(chunk)
    return b"".join(chunks)


def callers(frontend: RunningFrontend) -> int:
    """The connections of callers that its only process holds; it opens others by itself."""
    (process,) = psutil.Process(frontend.process.pid).children()
    return sum(each.laddr.port == frontend.port and bool(each.raddr) for each in process.net_connections("tcp"))


BEGUN = [
    (b"GET / HT", 408),
    (HEAD % (b"/predict", 60_000), 408),
    (HEAD.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n") % (b"/predict", 60_000), 408),
    (b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nabc", 408),
    (HEAD % (b"/predict", TOO_LARGE), 413),
    (HEAD % (b"/nowhere", TOO_LARGE), 404),
    (HEAD % (b"/nowhere", 60_000), 404),
]


@pytest.mark.parametrize("drips", [False, True])
def test_connections_whose_body_never_comes_end_after_the_answer(frontend: RunningFrontend, drips: bool) -> None:
    held = callers(frontend)
    connections = [connect(frontend) for _ in BEGUN]
    try:
        for connection, (sent, _) in zip(connections, BEGUN, strict=True):
            connection.sendall(sent)
        for connection, (_, status) in zip(connections, BEGUN, strict=True):
            answer = connection.recv(1 << 16).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n") or connection.recv(1 << 16)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())

        def are_closed() -> bool:
            for connection in connections if drips else ():
                with suppress(OSError):
                    connection.send(b"x")
            return callers(frontend) <= held

        wait_until(are_closed, "the frontend has closed them")
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("path", ["/predict", "/nowhere"])
def test_a_client_that_sends_all_of_a_body_that_is_too_large_reads_why(frontend: RunningFrontend, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", frontend.port, timeout=30)
    try:
        connection.request("POST", path, bytes(TOO_LARGE))
        response = connection.getresponse()
        answer = response.read()
    finally:
        connection.close()

    assert response.status == (413 if path == "/predict" else 404)
    assert answer.startswith(b'{"error":')


def test_a_wrong_path_costs_no_connection_when_the_body_is_there(frontend: RunningFrontend) -> None:
    with connect(frontend) as connection:
        for _ in range(2):
            connection.sendall(HEAD % (b"/nowhere", 3) + b"abc")
            answer = connection.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 404 ")
            assert b"connection: keep-alive" in answer


def test_requests_that_come_together_are_answered_in_order(frontend: RunningFrontend) -> None:
    paths = ["/livez", "/nowhere", "/"] * 100
    answers = b""
    with connect(frontend) as connection:
        connection.sendall("".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths).encode())
        while answers.count(b"HTTP/1.1 ") < len(paths):
            answers += connection.recv(1 << 16)

    assert [answer[:3] for answer in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"] * 100


ASKED = [
    (b"GET / HTTP/1.1\r\nHost: x\r\nX-Request-ID: a\r\n\r\n", 200, b"a"),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX-Request-ID: b\r\n\r\n", 200, b"b"),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX-Request-ID: a\r\nX-Request-ID: b\r\n\r\n", 200, b"a"),
    (b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Request-ID: a\r\n\r\n", 200, b"a"),
    (b"HEAD / HTTP/1.1\r\nHost: x\r\nX-Request-ID: a\r\n\r\n", 200, b"a"),
    (b"HEAD /livez HTTP/1.1\r\nHost: x\r\nX-Request-ID: a\r\n\r\n", 200, b"a"),
    (HEAD % (b"/nowhere", 3) + b"abc", 404, None),
    (HEAD % (b"/nowhere", 5) + b"abcde", 404, None),
    (b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 404, None),
    (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200, None),
    (b"GET / HTTP/1.0\r\nHost: x\r\n\r\n", 200, None),
]


@pytest.mark.parametrize("parts", [1, 2, 50])
def test_each_head_of_a_connection_is_read_for_itself(patient_frontend: RunningFrontend, parts: int) -> None:
    connection = connect(patient_frontend)
    try:
        for sent, status, name in [*ASKED, *reversed(ASKED)]:
            size = -(-len(sent) // parts)
            for start in range(0, len(sent), size):
                connection.sendall(sent[start : start + size])
            head, _, body = connection.recv(1 << 16).partition(b"\r\n\r\n")
            assert head.startswith(f"HTTP/1.1 {status} ".encode())
            assert re.findall(rb"x-request-id: (\w+)", head.lower()) == ([name] if name else [])
            assert len(body) == (0 if sent.startswith(b"HEAD") else int(re.findall(rb"content-length: (\d+)", head)[0]))
            if b"close" in sent or b"HTTP/1.0" in sent:
                assert connection.recv(1) == b""
                connection.close()
                connection = connect(patient_frontend)
    finally:
        connection.close()


GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (GET, [b"200"]),
        (GET * 3, [b"200"] * 3),
        (HEAD % (b"/predict", 2) + b"{}", [b"503"]),
        (GET + HEAD % (b"/predict", 5) + b"{", [b"200"]),
        (GET + b"GET / HT", [b"200"]),
        (b"", []),
    ],
)
def test_what_has_come_whole_is_answered_when_the_client_sends_no_more(
    frontend: RunningFrontend, sent: bytes, statuses: list[bytes]
) -> None:
    """`nc -N`: the other direction of the connection is still open."""
    with connect(frontend) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = read_all(connection)

    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == statuses


SMUGGLED = b"GET /models HTTP/1.1\r\nHost: x\r\n\r\n"
MALFORMED = {
    "white space before the colon": b"Content-Length : %d",
    "a tab before the colon": b"Content-Length\t: %d",
    "a folded line": b"X: y\r\n Content-Length: %d",
    "a folded first line": b" Content-Length: %d",
    "a bare LF": b"X: y\nContent-Length: %d",
    "a bare CR": b"X: y\rContent-Length: %d",
    "a NUL": b"X: y\0\r\nContent-Length: %d",
    "a control character": b"X: y\x0b\r\nContent-Length: %d",
    "a name that is no token": b"X[y]: z\r\nContent-Length: %d",
    "a name beyond ASCII": b"\xc3\xbc: z\r\nContent-Length: %d",
    "no name": b": y\r\nContent-Length: %d",
    "no colon": b"X\r\nContent-Length: %d",
    "a number of another script": b"Content-Length: %d".replace(b"%d", "\u0661".encode()),
    "white space of Unicode before a number": b"Content-Length:\xc2\xa0%d",
    "white space of Unicode before an encoding": b"Transfer-Encoding: \xe2\x80\x83chunked",
    "a second host": b"Host: y\r\nContent-Length: %d",
}


@pytest.mark.parametrize("header", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_head_ends_the_connection(frontend: RunningFrontend, header: bytes) -> None:
    """RFC 9112, 2.2 and 5: a proxy may have taken what follows for a body."""
    header = header.replace(b"%d", b"%d" % len(SMUGGLED))
    with connect(frontend) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n" + SMUGGLED)
        answer = read_all(connection)

    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"400"]


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        (b"GET /livez HTTP/1.1\r\n", [b"400"]),
        (b"GET /livez HTTP/1.1\r\nHost: x y\r\n", [b"400"]),
        (b"GET /livez HTTP/1.1\r\nHost: x/y\r\n", [b"400"]),
        (b"GET /livez HTTP/1.0\r\nHost: x\r\nHost: x\r\n", [b"400"]),
        (b"GET /livez HTTP/1.0\r\n", [b"200"]),
        (b"GET /livez HTTP/1.1\r\nHost:\r\nConnection: close\r\n", [b"200"]),
        (b"GET /livez HTTP/1.1\r\nHost: x \t\r\nConnection: close\r\n", [b"200"]),
        (b"GET /livez HTTP/1.1\r\nhost: [::1]:80\r\nConnection: close\r\n", [b"200"]),
    ],
)
def test_a_request_names_one_host(frontend: RunningFrontend, head: bytes, statuses: list[bytes]) -> None:
    """RFC 9112, 3.2: of two hosts a proxy may have judged the other one. HTTP/1.0 needs none."""
    with connect(frontend) as connection:
        connection.sendall(head + b"\r\n")
        answer = read_all(connection)

    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == statuses


@pytest.mark.parametrize("value", ["", "y", " y", "\ty\t", "\u00fc", "a\u00a0b", "a:b", '"; ,'])
def test_a_value_of_any_text_is_read(frontend: RunningFrontend, value: str) -> None:
    with connect(frontend) as connection:
        connection.sendall(f"GET /livez HTTP/1.1\r\nHost: x\r\nX!#$%&'*+-.^_`|~1:{value}\r\n\r\n".encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


TWINS = ["X-Request-ID: {}", "X-Request-ID:{}", "X-Request-ID:   {}", "X-Request-ID:\t{}", "x-REQUEST-id: {}"]


@pytest.mark.parametrize("more", ["", "X-Other: \u00fc\r\n"], ids=["ascii", "other text"])
@pytest.mark.parametrize("written", TWINS)
def test_a_value_is_read_without_the_white_space_before_it(frontend: RunningFrontend, written: str, more: str) -> None:
    """Heads of ASCII take a shorter way than others."""
    with connect(frontend) as connection:
        connection.sendall(f"GET /livez HTTP/1.1\r\nHost: x\r\n{written.format('an-id')}\r\n{more}\r\n".encode())
        head = connection.recv(1 << 16).partition(b"\r\n\r\n")[0].lower()

    assert head.startswith(b"http/1.1 200 ")
    assert re.findall(rb"x-request-id: (.*)", head.replace(b"\r", b"")) == [b"an-id"]


CHUNKED = b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "chunk",
    [
        *[
            b"0x1\r\na\r\n",
            b" 1\r\na\r\n",
            b"1 \r\na\r\n",
            b"+1\r\na\r\n",
            b"1_0\r\n0123456789abcdef\r\n",
            b"\r\na\r\n",
        ],
        *[b"1;x\ny\r\na\r\n", b"1\na\r\n", b"-1\r\na\r\n", b"1\r\naXX", "\u0661\r\na\r\n".encode()],
    ],
)
def test_a_malformed_chunk_ends_the_connection(frontend: RunningFrontend, chunk: bytes) -> None:
    """RFC 9112, 7.1."""
    with connect(frontend) as connection:
        connection.sendall(CHUNKED + chunk + b"0\r\n\r\n" + SMUGGLED)
        answer = read_all(connection)

    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"400"]


@pytest.mark.parametrize(
    "chunks", [b"a\r\n0123456789\r\n", b'0A;x="y"\r\n0123456789\r\n', b"3\r\nabc\r\n001\r\nd\r\n", b""]
)
def test_chunks_of_every_right_form_are_read(frontend: RunningFrontend, chunks: bytes) -> None:
    with connect(frontend) as connection:
        connection.sendall(CHUNKED + chunks + b"0\r\n\r\n" + SMUGGLED)
        answer = b""
        while answer.count(b"HTTP/1.1 ") < 2:
            answer += connection.recv(1 << 16)

    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"503", b"200"]


@pytest.mark.parametrize("name", [b"Chunked", b"CHUNKED", b"chunked \t"])
def test_the_name_of_an_encoding_is_read_in_any_case(patient_frontend: RunningFrontend, name: bytes) -> None:
    """RFC 9112, 7."""
    head = CHUNKED.replace(b"chunked", name)
    with connect(patient_frontend) as connection:
        for part in head[:-3], head[-3:] + b"1\r\na\r\n0\r\n\r\n" + SMUGGLED:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        answer = read_all(connection)

    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"503", b"200"]


@pytest.mark.parametrize("encoding", [b"gzip, chunked", b"xchunked", b"chunked, chunked", b"identity"])
def test_another_encoding_ends_the_connection(frontend: RunningFrontend, encoding: bytes) -> None:
    with connect(frontend) as connection:
        connection.sendall(CHUNKED.replace(b"chunked", encoding) + b"1\r\na\r\n0\r\n\r\n" + SMUGGLED)
        answer = read_all(connection)

    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"400"]


def test_an_empty_line_before_a_request_is_left_out(frontend: RunningFrontend) -> None:
    """RFC 9112, 2.2: some clients end a body with a line break that its length does not count."""
    with connect(frontend) as connection:
        for part in HEAD % (b"/nowhere", 3) + b"abc\r\n" + SMUGGLED, b"\r\n", SMUGGLED:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        answer = read_all(connection)

    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"404", b"200", b"200"]


def test_a_client_of_https_at_the_port_of_http_is_refused_at_once(frontend: RunningFrontend) -> None:
    greeting = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), greeting, server_hostname="x").do_handshake()

    with connect(frontend) as connection:
        connection.sendall(greeting.read())
        answer = read_all(connection)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"call http://" in answer


def test_one_that_does_not_read_does_not_hinder_others(frontend: RunningFrontend) -> None:
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 500
    connections = [connect(frontend) for _ in range(20)]
    try:
        for connection in connections:
            connection.sendall(asked)
        assert frontend.answers()
    finally:
        for connection in connections:
            connection.close()


def test_half_a_request_is_given_up_in_silence(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """`stop` finds tracebacks in the log."""
    with running_frontend(tmp_path, redis_server, drainTimeout=0.2) as frontend:
        with connect(frontend) as half:
            half.sendall(b"GET / HT")
        with connect(frontend) as half:
            half.sendall(b"GET / HT")
            wait_until(lambda: callers(frontend), "it is there")
            assert frontend.stop() == 0


def test_a_handshake_that_does_not_end_does_not_hinder_a_stop(redis_server: PrivateRedis, tmp_path: Path) -> None:
    write_certificates(tmp_path)
    https = {"httpsKeyStorePath": str(tmp_path / "store.p12"), "httpsKeyStoreToken": PASSWORD, "httpsEnabled": True}
    port = free_port()
    trusting = ssl.create_default_context(cafile=tmp_path / "cert.pem")
    with running_frontend(tmp_path / "frontend", redis_server, securePort=port, drainTimeout=3600, **https) as frontend:
        silent = socket.create_connection(("127.0.0.1", port))
        raw = socket.create_connection(("127.0.0.1", port), timeout=20)
        with silent, trusting.wrap_socket(raw, server_hostname="localhost") as encrypted:
            silent.sendall(b"\x16\x03\x01")
            encrypted.sendall(HEAD % (b"/predict", 1 << 40))
            assert encrypted.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
            code = frontend.stop()

    assert code == 0
