"""Bodies: their compression, and their JSON."""

import asyncio
import gzip
import json
import zlib
from threading import Event, current_thread, main_thread
from typing import Any

import numpy as np
import pytest
from sanic import Request, Sanic
from sanic.compat import Header
from sanic.exceptions import PayloadTooLarge

from cluster_serving.frontend.http import json_body
from cluster_serving.frontend.http.body import read
from cluster_serving.frontend.http.compression import deflate, inflate
from cluster_serving.frontend.http.errors import BadRequest, UnsupportedMediaType
from cluster_serving.frontend.v2.request import decode_request

LARGE = bytes(2 << 20)
APP: Sanic[Any, Any] = Sanic("bodies")


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_compressed_bodies_are_opened(encoding: str, compress: Any) -> None:
    assert inflate(compress(b"a body"), encoding, 6) == b"a body"


@pytest.mark.parametrize(
    ("body", "encoding", "error", "reason"),
    [
        (
            gzip.compress(bytes(1 << 20), mtime=0),
            "gzip",
            PayloadTooLarge,
            "more than 1000 bytes without its compression",
        ),
        (b"no gzip", "gzip", BadRequest, "the body is not gzip"),
        (gzip.compress(b"a body", mtime=0)[:-4], "gzip", BadRequest, "it is cut off"),
        (gzip.compress(b"a body", mtime=0) + b"more", "gzip", BadRequest, "it goes on behind its end"),
        (b"", "deflate", BadRequest, "it is cut off"),
        (b"a body", "br", UnsupportedMediaType, "the content encoding is 'br'; gzip, deflate and none are read"),
    ],
)
def test_bodies_that_cannot_be_opened_are_refused(body: bytes, encoding: str, error: Any, reason: str) -> None:
    with pytest.raises(error, match=reason):
        inflate(body, encoding, 1000)


def test_large_responses_are_compressed_if_the_client_can_open_them() -> None:
    body = json.dumps([0.5] * 1000).encode()

    assert gzip.decompress(deflate(body, "br, gzip;q=0.5")[0]) == body
    assert zlib.decompress(deflate(body, "deflate, gzip")[0]) == body
    for accepted in ("", "identity", "br", "gzip;q=0", "gzip; q=0.000", "*"):
        assert deflate(body, accepted) == (body, "")
    assert deflate(b"small", "gzip") == (b"small", "")


@pytest.mark.parametrize("part", [b"[]", b"{}", b'""', b'"a"'])
def test_json_that_would_take_many_times_its_size_is_not_read(part: bytes) -> None:
    body = b'{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":[%b]}]}' % b",".join(
        [part] * json_body.MAX_PARTS
    )

    with pytest.raises(BadRequest, match=r"419\d{4} lists, objects and texts; at most 4194304 are read"):
        json_body.parse(body)
    with pytest.raises(BadRequest, match="lists, objects and texts"):
        decode_request(body, None)


def test_whatever_python_has_becomes_json() -> None:
    document = {"large": 2**70, "odd": "\ud800", "none": float("nan"), "array": np.array([1.5, np.inf]), "row": (1, 2)}

    assert json.loads(json_body.write(document)) == {**document, "none": None, "array": [1.5, None], "row": [1, 2]}
    assert json_body.write({"a": np.array([0.1], np.float32)}) == b'{"a":[0.1]}'


def request_of(body: bytes, encoding: str) -> Request:
    no_transport: Any = None
    request = Request(b"/", Header({"content-encoding": encoding}), "1.1", "POST", no_transport, APP)
    request.body = body
    return request


@pytest.mark.parametrize(
    ("encoding", "sent", "content"),
    [("", LARGE, LARGE), ("identity", LARGE, LARGE), (" GZIP", gzip.compress(b"small", mtime=0), b"small")],
)
def test_others_are_answered_while_a_large_body_is_read(encoding: str, sent: bytes, content: bytes) -> None:
    answered = Event()

    async def serve() -> bool:
        request = request_of(sent, encoding)
        reading = asyncio.create_task(read(request, len(LARGE), lambda body: body == content and answered.wait(10)))
        await asyncio.sleep(0)  # it begins
        answered.set()
        return await reading

    assert asyncio.run(serve())


def test_a_small_body_is_read_at_once() -> None:
    assert asyncio.run(read(request_of(b"small", ""), 5, lambda body: (body, current_thread()))) == (
        b"small",
        main_thread(),
    )
