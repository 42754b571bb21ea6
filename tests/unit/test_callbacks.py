"""Callbacks without a network: targets that may be called, and the signature."""

import asyncio
import ssl
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cluster_serving.frontend.config.settings import FrontendConfig, signing_key
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.models.later import webhook
from cluster_serving.frontend.models.later.target import Forbidden, Target, is_public
from cluster_serving.frontend.models.later.webhook import post, signed
from support.certificates import write_certificates

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of the test vector of Standard Webhooks


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.1.1", "192.168.0.1", "100.64.0.1"),  # noqa: S104
        *("169.254.169.254", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("::1", "::", "fe80::1", "fe80::1%lo", "fc00::1", "fec0::1", "fd00:ec2::254", "ff02::1", "100::1"),
        *("::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::"),
    ],
)
def test_an_address_that_is_not_everybodys_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::", "2606:4700::1111"]
)
def test_an_address_of_everybody_is_public(address: str) -> None:
    assert is_public(address)


def test_a_target_has_the_parts_of_its_url() -> None:
    assert Target.parse("https://A.example/b?c=d", ()) == Target(True, "a.example", 443, "/b?c=d", False)
    assert Target.parse("http://a.example:81", ["A.example"]) == Target(False, "a.example", 81, "/", True)
    assert Target.parse("http://[::1]:81/x", ["::1:81"]).authority == "[::1]:81"
    assert Target.parse("https://a.example:443/", ()).authority == "a.example"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://a.example/",
            "ftp://a.example/",
            "https:///path",
            "https://",
            "//a.example",
            "a.example",
            "https://a:b/",
        ),
        *(
            "https://u:p@a.example/",
            "https://a.example/#f",
            "https://a.example/\r\nx: y",
            "https://a.example/ b",
            "https://ä/",
        ),
        *("https://127.0.0.1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://169.254.169.254/latest"),
        *(
            "https://10.0.0.1:8443/",
            "http://127.0.0.1:82/",
            "https://a.example:0/",
            "https://[::1",
            "https://a.example/" + "x" * 2048,
        ),
    ],
)
def test_a_url_that_may_not_be_called_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="callback"):
        Target.parse(url, ["127.0.0.1:81"])


class Network(NamedTuple):
    """A name server that gives another answer each time, and connections that are all refused."""

    answers: list[list[str]]
    called: list[str]

    async def look_up(self, _host: str, port: int, **_: Any) -> Any:
        """The next answer."""
        return [(0, 1, 6, "", (address, port)) for address in self.answers.pop(0)]

    async def connect(self, _factory: Any, host: str, _port: int, **options: Any) -> Any:
        """Note the address."""
        self.called.append(host)
        raise ConnectionRefusedError(f"{host} {options['server_hostname']}")


def attempt(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> tuple[Exception, Network]:
    """Post to a name with these answers of the name server; the error, and the network."""
    network = Network([*answers], [])
    with asyncio.Runner() as runner:
        monkeypatch.setattr(runner.get_loop(), "getaddrinfo", network.look_up)
        monkeypatch.setattr(runner.get_loop(), "create_connection", network.connect)
        with pytest.raises((Forbidden, OSError)) as caught:
            runner.run(post(Target.parse("https://a.example/", ()), {}, b"", 10))
    return caught.value, network


@pytest.mark.parametrize("answer", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["2606:4700::1111", "::1"]])
def test_a_name_with_an_address_that_is_not_public_is_not_called(
    monkeypatch: pytest.MonkeyPatch, answer: list[str]
) -> None:
    error, network = attempt(monkeypatch, answer)

    assert isinstance(error, Forbidden)
    assert network.called == []


def test_the_address_that_is_called_is_the_one_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that gives a private address at the second look has nobody who looks again."""
    error, network = attempt(monkeypatch, ["8.8.8.8", "9.9.9.9"], ["127.0.0.1"])

    assert network.called == ["8.8.8.8", "9.9.9.9"]
    assert "9.9.9.9 a.example" in str(error), "TLS checks the certificate of the name"
    assert network.answers == [["127.0.0.1"]]


async def posted(answer: bytes, url: str, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """Post to a server of this machine with this answer; the status, and what the server was sent."""
    sent = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.extend(await reader.readuntil(b"body"))
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        target = Target.parse(url.format(port=port), ["127.0.0.1", "localhost"])
        return await post(target, {"webhook-id": "m"}, b"body", 10), bytes(sent)


def test_a_post_is_a_request_of_http() -> None:
    status, sent = asyncio.run(posted(b"HTTP/1.1 204 No Content\r\n\r\n", "http://127.0.0.1:{port}/a?b=c"))

    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert (status, lines[0], body) == (204, b"POST /a?b=c HTTP/1.1", b"body")
    assert {b"Content-Length: 4", b"Connection: close", b"webhook-id: m"} < {*lines}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 200),
        (b"HTTP/1.0 307 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\n\r\n", 307),
        (b"HTTP/1.1 503\r\n", 503),
    ],
)
def test_the_status_of_an_answer(answer: bytes, status: int) -> None:
    assert asyncio.run(posted(answer, "http://127.0.0.1:{port}/"))[0] == status


@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"HTTP/1.1 2", b"SSH-2.0-OpenSSH\r\n", b"x" * 100_000, b"HTTP/1.1 100 Continue\r\n" * 1000),
        b"HTTP/1.1 103 Early\r\n" + b"x" * 100_000,
    ],
    ids=["nothing", "cut", "not HTTP", "a long line", "endless", "a long header"],
)
def test_an_answer_that_is_none_is_an_error(answer: bytes) -> None:
    with pytest.raises(OSError, match="answer"):
        asyncio.run(posted(answer, "http://127.0.0.1:{port}/"))


def test_tls_checks_the_certificate_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    answer, url = b"HTTP/1.1 200 OK\r\n\r\n", "https://localhost:{port}/"
    webhook.tls_context.cache_clear()

    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(posted(answer, url, tls))
    webhook.tls_context.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))

    assert asyncio.run(posted(answer, url, tls))[0] == 200
    webhook.tls_context.cache_clear()


def test_the_signature_is_that_of_standard_webhooks() -> None:
    headers = signed(signing_key(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_c2hvcnQ=", "no base64!", "whsec_" + "A" * 88])
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="openssl rand"):
        FrontendConfig.model_validate({"callbackSecret": secret})
