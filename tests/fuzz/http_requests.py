"""Requests that no client should send: bodies, headers and ways of sending, each from a seed."""

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, NamedTuple


class Sent(NamedTuple):
    """One request as it goes over the wire: `parts` with a pause between them."""

    kind: str
    parts: list[bytes]


_GOOD = json.dumps({"instances": [{"x": [1.0, 2.0, 3.0, 4.0]}]}).encode()
_GOOD_V1 = json.dumps({"instances": [[1.0, 2.0, 3.0, 4.0]]}).encode()
_GOOD_V2 = json.dumps(
    {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}]}
).encode()


class Routes:
    """The paths of one job that take a body, each with a good one."""

    def __init__(self, job: str) -> None:
        self.predict = "/predict"
        self.bodies = {
            "/predict": _GOOD,
            f"/predict/{job}": _GOOD,
            f"/models/{job}/versions/1/predict": _GOOD,
            f"/v1/models/{job}:predict": _GOOD_V1,
            f"/v1/models/{job}:classify": _GOOD_V1,
            f"/v2/models/{job}/infer": _GOOD_V2,
        }


Maker = Callable[[Random, Routes], Sent]


def malformed(random: Random, routes: Routes) -> Sent:
    """One request, of a kind that the seed chooses; the rare kinds are those that take time."""
    maker = random.choice(_COMMON if random.random() < 0.97 else _COSTLY)
    sent = maker(random, routes)
    return sent._replace(kind=maker.__name__.removeprefix("_"))


def post(path: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    """A POST as it goes over the wire."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    if not any(header.lower().startswith(("content-length", "transfer-encoding")) for header in headers):
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _sent(*parts: bytes) -> Sent:
    return Sent("", list(parts))


def _any(random: Random, routes: Routes) -> tuple[str, bytes]:
    return random.choice(sorted(routes.bodies.items()))


def _truncated_json(random: Random, routes: Routes) -> Sent:
    path, body = _any(random, routes)
    return _sent(post(path, body[: random.randrange(len(body))]))


def _mutated_json(random: Random, routes: Routes) -> Sent:
    path, body = _any(random, routes)
    changed = bytearray(body)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(changed) + 1)
        match random.randrange(3):
            case 0:
                changed[at:at] = random.randbytes(random.randint(1, 4))
            case 1:
                del changed[at : at + random.randint(1, 4)]
            case _:
                changed[at : at + 1] = random.choice(b'[]{},:"0123456789-eE.').to_bytes()
    return _sent(post(path, bytes(changed)))


_VALUES = (
    "NaN",
    "[NaN,1,2,3]",
    "Infinity",
    "[1e999,1,2,3]",
    "-1e400",
    "1" * 400,
    f"[{'9' * 30},1,2,3]",
    "[1,2,3]",
    "[[1,2,3,4],[1,2]]",
    "null",
    "[null,1,2,3]",
    "true",
    "[true,false,true,true]",
    '["a","b","c","d"]',
    '"text"',
    "{}",
    "[]",
    "[[]]",
    "[1,2,3,[4]]",
    '{"b64":"####"}',
    '{"b64":7}',
    '{"b64":"/9j/4AAQSkZJRg=="}',
    '"/9j/4AAQSkZJRgABAQ"',
    '{"shape":[4],"data":[1],"indices":[[9]]}',
    '{"shape":[-4],"data":[1],"indices":[[0]]}',
    '{"shape":[4000000000,4000000000],"data":[1],"indices":[[0,0]]}',
    '{"shape":[4],"data":[1,2],"indices":[[0]]}',
    '{"shape":"x","data":[],"indices":[]}',
    '{"shape":[1e9],"data":[1],"indices":[[0]]}',
    '"\\ud800"',
    '"\\u0000"',
    "1e-999",
    "-0",
    "[1.5,2.5,3.5,1e39]",
    "12345678901234567890",
)


def _odd_values(random: Random, routes: Routes) -> Sent:
    path, _ = _any(random, routes)
    value, key = random.choice(_VALUES), random.choice(("x", "y", "", "t", "uri", "x" * 5000, "\\u0000"))
    shapes = (
        '{"instances":[{"%s":%s}]}',
        '{"instances":{"%s":%s}}',
        '{"instances":[{"x":[1,2,3,4]},{"%s":%s}]}',
        '{"%s":%s}',
        '{"inputs":{"%s":%s}}',
        '{"inputs":[{"name":"%s","shape":[1,4],"datatype":"FP32","data":%s}]}',
        '[{"%s":%s}]',
        '{"instances":[{"x":[1,2,3,4],"%s":%s}]}',
        '{"inputs":[{"name":"x","shape":%s,"datatype":"FP32","data":[1,2,3,4]}]}',
    )
    shape = random.choice(shapes)
    return _sent(post(path, (shape % ((key, value) if shape.count("%s") == 2 else value)).encode()))


def _odd_tensors(random: Random, routes: Routes) -> Sent:
    """Of the Open Inference Protocol, with the binary extension."""
    path = next(path for path in routes.bodies if path.startswith("/v2"))
    datatype = random.choice(["FP32", "INT64", "BYTES", "BOOL", "FP16", "BF16", "UINT8", "FP99", "", 7])
    shape = random.choice(
        [[1, 4], [4], [0, 4], [-1, 4], [1 << 40, 1 << 40], [1, 4, 1], [], "x", [1.5], None, [1] * 100]
    )
    data = random.randbytes(random.choice([0, 1, 15, 16, 17, 64]))
    size = random.choice([len(data), 0, -1, 1 << 62, "x", None, 16])
    tensor: dict[str, Any] = {"name": random.choice(["x", "y"]), "shape": shape, "datatype": datatype}
    tensor["parameters"] = random.choice([{"binary_data_size": size}, {}, None, [], {"classification": -1}])
    head = json.dumps(
        {"inputs": [tensor] * random.choice([1, 1, 1, 2, 50]), "outputs": random.choice([[], [{"name": "no"}], 3])}
    )
    said = random.choice([len(head), len(head), len(head), 0, -1, 10**12, "x"])
    return _sent(post(path, head.encode() + data, f"Inference-Header-Content-Length: {said}"))


def _deep_nesting(random: Random, routes: Routes) -> Sent:
    path, _ = _any(random, routes)
    depth = random.choice([50, 500, 5000, 50_000])
    opening, closing = random.choice([("[", "]"), ('{"a":', "}")])
    return _sent(post(path, f'{{"instances":[{{"x":{opening * depth}1{closing * depth}}}]}}'.encode()))


def _bad_utf8(random: Random, routes: Routes) -> Sent:
    path, body = _any(random, routes)
    return _sent(post(path, body.replace(b"x", random.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\x80"]))))


def _bad_multipart(random: Random, routes: Routes) -> Sent:
    boundary = random.choice(["b", "", "x" * 300, "--", '"'])
    part = random.choice(
        [
            b'--b\r\nContent-Disposition: form-data; name="x"; filename="a.jpg"\r\n\r\n\xff\xd8\xff\r\n--b--\r\n',
            b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n[1,2,3\r\n--b--\r\n',
            b"--b\r\nContent-Disposition: form-data\r\n\r\n\r\n--b--",
            b"--b\r\n\r\n\r\n--b",
            b"--c--",
            b"",
            random.randbytes(200),
        ]
    )
    return _sent(post(routes.predict, part, f"Content-Type: multipart/form-data; boundary={boundary}"))


def _bad_image(random: Random, routes: Routes) -> Sent:
    body = random.choice([b"", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n" + random.randbytes(40), random.randbytes(300)])
    return _sent(post(routes.predict, body, f"Content-Type: image/{random.choice(['jpeg', 'png', 'x', ''])}"))


def _bad_headers(random: Random, routes: Routes) -> Sent:
    path, body = _any(random, routes)
    header = random.choice(
        [
            "X-Request-Timeout: nan",
            "X-Request-Timeout: -1",
            "X-Request-Timeout: 1e400",
            "traceparent: 00-zz",
            "X-Request-ID: " + "i" * 4000,
            "X-Request-ID: \xe4\xf6",
            "Content-Encoding: br",
            "Content-Encoding: gzip",
            "Content-Length: x",
            "Content-Length: -5",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: gzip",
            "Expect: 100-continue",
            "Expect: \xff",
            "Accept: \xff",
            "Host: \xff",
            "Authorization: Bearer \xff",
            "Content-Type: application/json; charset=utf-99",
            "Content-Type: multipart/form-data",
            "Upgrade: websocket",
            "Content-Type: ;;;",
        ]
    )
    return _sent(post(path, body, header))


def _bad_chunks(random: Random, routes: Routes) -> Sent:
    path, _ = _any(random, routes)
    body = random.choice(
        [b"zz\r\n{}\r\n0\r\n\r\n", b"5\r\n{}\r\n", b"ffffffffffffffff\r\n", b"-1\r\n\r\n", b"2;a=b\r\n{}\r\n0\r\n\r\n"]
    )
    return _sent(post(path, body, "Transfer-Encoding: chunked"))


def _no_http(random: Random, routes: Routes) -> Sent:
    line = random.choice(
        [
            b"GET / HTTP/9.9\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01",
            b"POST\r\n\r\n",
            b"\r\n\r\n\r\n",
            b"GET " + b"/" * 9000 + b" HTTP/1.1\r\n\r\n",
            b"BREW /predict HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /%00%ff HTTP/1.1\r\nHost: a\r\n\r\n",
            b"DELETE /predict HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET http://[::1 HTTP/1.1\r\nHost: a\r\n\r\n",
            random.randbytes(100) + b"\r\n\r\n",
            b"GET /models/%2e%2e/versions/\xff HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /v1/models/a:b:c HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST /v1/models/: HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            b"GET /v2/models//infer HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST /model-secure HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\xff&=",
        ]
    )
    return _sent(line)


def _many_headers(random: Random, routes: Routes) -> Sent:
    path, body = _any(random, routes)
    count, size = random.choice([(2000, 20), (20, 20_000), (1, 200_000)])
    return _sent(post(path, body, *(f"X-{number}: {'h' * size}" for number in range(count))))


def _gzip_bomb(random: Random, routes: Routes) -> Sent:
    path, _ = _any(random, routes)
    encoding = random.choice(["gzip", "deflate"])
    return _sent(post(path, _bomb(encoding), f"Content-Encoding: {encoding}"))


@cache
def _bomb(encoding: str) -> bytes:
    compress = gzip.compress if encoding == "gzip" else zlib.compress
    return compress(bytes(300 << 20), 9)


def _large_promise(random: Random, routes: Routes) -> Sent:
    path, body = _any(random, routes)
    return _sent(post(path, body, length=random.choice([1 << 30, 1 << 40, 1 << 63])))


def _slow(random: Random, routes: Routes) -> Sent:
    path, body = _any(random, routes)
    whole = post(path, body)
    cuts = sorted(random.sample(range(1, len(whole)), 5))
    parts = [whole[first:last] for first, last in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    return _sent(*parts[: random.randint(1, 5)])


def _large_base64(random: Random, routes: Routes) -> Sent:
    text = base64.b64encode(random.randbytes(200_000)).decode()
    return _sent(post(routes.predict, json.dumps({"instances": [{"x": text[random.randrange(3) :]}]}).encode()))


def _many_instances(random: Random, routes: Routes) -> Sent:
    return _sent(post(routes.predict, b'{"instances":[' + b",".join([b"{}"] * random.choice([5000, 100_000])) + b"]}"))


_COMMON: tuple[Maker, ...] = (
    _truncated_json,
    _mutated_json,
    _odd_values,
    _odd_tensors,
    _bad_utf8,
    _bad_multipart,
    _bad_image,
    _bad_headers,
    _bad_chunks,
    _no_http,
)
_COSTLY: tuple[Maker, ...] = (
    _deep_nesting,
    _many_headers,
    _gzip_bomb,
    _large_promise,
    _slow,
    _large_base64,
    _many_instances,
)
