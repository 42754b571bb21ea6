"""Requests of one HTTP connection in sequence: read and answered as by Sanic, but quicker and without Sanic's failures.

A body that has arrived is taken in one piece, and a response of JSON is written in one piece.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from sanic import Request
from sanic.exceptions import BadRequest, BadURL, PayloadTooLarge
from sanic.http import Http, Stage
from sanic.http.http1 import HTTP_CONTINUE
from sanic.server import HttpProtocol

from cluster_serving.frontend.http.responses import JsonResponse

# Sanic reads more than RFC 9112 allows (sections 3.2, 5 and 7.1). Behind a proxy that reads the same bytes in another way, the body
# of a request could be run as a request that has passed none of the proxy's rules.
_TEXT = rb"[^\x00-\x08\x0a-\x1f\x7f]*+"
_HEAD = re.compile(_TEXT + rb"(?:\r\n[\w!#$%&'*+.^`|~-]++:" + _TEXT + rb")*+")
# White space of Unicode at the beginning of a value. Sanic strips it, and would read a length there that no proxy reads.
_STRIPPED = re.compile(rb":[\t ]*(?:\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80|\xe2\x81\x9f|\xe3\x80\x80)")
# Sanic knows the name of this encoding in small letters alone.
_CHUNKED = re.compile(rb"(\r\ntransfer-encoding:[ \t]*+)chunked[ \t]*(?=\r\n)", re.IGNORECASE)
_HOST = re.compile(r"[!$%&'()*+,\-.0-9:;=A-Z\[\]_a-z~]*")
# Nearly all heads: printable ASCII, and no header that changes how Sanic reads the request or that RFC 9112 makes conditions for.
_PLAIN = re.compile(r"(GET|POST) (/[!-~]*) HTTP/1\.1\r\n((?:[\w!#$%&'*+.^`|~-]++:[ -~]*+\r\n)++)", re.ASCII)
_SPECIAL = re.compile(
    rf"\r\n(?i:connection:(?! keep-alive\r)|content-length:(?! [0-9]{{1,15}}\r)|host:(?! {_HOST.pattern}\r)"
    r"|expect:|transfer-encoding:|upgrade:)"
)
_FIELD = re.compile(r"([^:]+): *([^\r]*)\r\n")
_CHUNK = re.compile(rb"\r\n[0-9A-Fa-f]{1,15}(?:;" + _TEXT + rb")?\r\n")
_LONGEST_CHUNK_LINE = 64
_TLS = b"\x16\x03"
"""Beginning of a TLS handshake: type of the record, and version (RFC 8446, 5.1)."""


class StreamRequest(Request[Any, Any]):
    """Sanic's request, with the body taken in one piece where possible."""

    __slots__ = ()

    async def receive_body(self) -> None:
        """Receive the body."""
        stream: Any = self.stream
        body: bytes | None = stream.take_body()
        if body is None:
            await super().receive_body()  # type: ignore[no-untyped-call]
        else:
            self.body = body


class Stream(Http):
    """Sanic's stream, for `StreamRequest`."""

    __slots__ = ("has_waited",)

    # Sanic stores more in these attributes than its annotations say.
    protocol: Any
    request_body: Any
    request_bytes: Any
    request_bytes_left: Any
    response_func: Any
    url: Any

    def __init__(self, protocol: HttpProtocol) -> None:
        super().__init__(protocol)  # type: ignore[no-untyped-call]
        self.request_body = None  # read before the first request
        self.has_waited = False
        """True once other connections have had a turn since the last request."""

    def create_empty_request(self) -> None:
        """Make a request to answer when an error came before the first request."""
        try:
            super().create_empty_request()
        # Sanic answers a request with a broken URL by a request with the same URL, and fails again.
        except BadURL:
            self.url = None
            super().create_empty_request()

    async def http1_request_header(self) -> None:
        """Read the head of a request.

        Of requests that came together, only one is read in each turn of the loop. Other connections need not wait for all of
        them.
        """
        if not self.has_waited:
            await asyncio.sleep(0)
        self.has_waited = False
        buffer = self.recv_buffer
        if buffer.startswith(b"\r\n"):  # some clients end a body with a line break that its length does not count
            del buffer[:2]
        if self._begin_plain():
            return
        while (end := buffer.find(b"\r\n\r\n")) < 0 and len(buffer) < self.HEADER_MAX_SIZE:
            if buffer.startswith(_TLS):  # the client would wait for the rest of a handshake until the time is over
                raise BadRequest("this port has HTTP, and the request begins as TLS does: call http://, or securePort")
            await self._receive_more()
        if end > 0:
            buffer[: end + 2] = _CHUNKED.sub(rb"\1chunked", buffer[: end + 2])
        await super().http1_request_header()  # type: ignore[no-untyped-call]
        head = self.request.head
        if not _HEAD.fullmatch(head) or (not head.isascii() and _STRIPPED.search(head)):
            raise BadRequest(
                "the head of the request is malformed: a header is `name: value` on one line that ends in CRLF, without "
                "white space before the colon and without control characters"
            )
        hosts = self.request.headers.getall("host", [])
        if len(hosts) > 1 or not (_HOST.fullmatch(hosts[0].rstrip(" \t")) if hosts else self.request.version == "1.0"):
            raise BadRequest(
                "the head of the request is malformed: there is one header Host, a name and perhaps a port"
            )

    def _begin_plain(self) -> bool:
        """Begin a request with a plain head, at half of Sanic's cost. Return False for another head, which is left to Sanic."""
        buffer, protocol = self.recv_buffer, self.protocol
        end = buffer.find(b"\r\n\r\n")
        if not 0 < end < self.HEADER_MAX_SIZE:
            return False
        text = buffer[: end + 2].decode("latin-1")
        plain = _PLAIN.fullmatch(text)
        if plain is None or _SPECIAL.search(text):
            return False
        method, self.url, fields = plain.groups()
        request: Any = protocol.request_class(
            self.url.encode(),
            _FIELD.findall(fields),
            "1.1",
            method,
            protocol.transport,
            protocol.app,
            bytes(buffer[:end]),
        )
        sizes = request.headers.getall("content-length", ())
        if len(sizes) > 1 or len(request.headers.getall("host", ())) != 1:
            return False
        self.keep_alive, self.head_only = protocol.app.config["KEEP_ALIVE"], False
        self.request_body = bool(sizes)
        self.request_bytes_left = self.request_bytes = int(sizes[0]) if sizes else 0
        protocol.request_class._current.set(request)
        del buffer[: end + 4]
        self.request, request.stream = request, self
        protocol.state["requests_count"] += 1
        return True

    async def read(self) -> bytes | None:
        """Return some bytes of the body, or None at its end."""
        if self.request_body == "chunked" and not self.request_bytes_left:
            if self.expecting_continue:
                self.expecting_continue = False
                await self._send(HTTP_CONTINUE)
            buffer = self.recv_buffer
            while buffer.find(b"\r\n", 2) < 0 and len(buffer) <= _LONGEST_CHUNK_LINE:
                await self._receive_more()
            if not _CHUNK.match(buffer):
                self.keep_alive = False
                raise BadRequest(
                    "the body is malformed: a chunk begins with its size, in hexadecimal digits alone, and CRLF"
                )
        return await super().read()

    @staticmethod
    def _safe_int(value: str, base: int = 10) -> int:
        """Return the number of a Content-Length or a chunk's size. Python's `int` takes the digits of every script.

        Raises:
            ValueError: the value is no number in ASCII digits.
        """
        if not value.isascii():
            raise ValueError(value)
        return Http._safe_int(value, base)

    def take_body(self) -> bytes | None:
        """Return the body if all of it has arrived. None: Sanic reads the body piece by piece."""
        size, buffer = self.request_bytes_left, self.recv_buffer
        if self.request_body is not True or self.expecting_continue:
            return None
        if not 0 < size <= min(len(buffer), self.request_max_size):
            return None
        if size == len(buffer):
            body = bytes(buffer)
            buffer.clear()
        else:
            body = bytes(buffer[:size])
            del buffer[:size]
        self.request_body, self.request_bytes_left = None, 0
        return body

    async def http1_response_header(self, data: bytes, end_stream: bool) -> None:
        """Begin the answer. JSON is sent to the end."""
        response: Any = self.response
        is_plain = type(response) is JsonResponse and not (data or self.head_only or self.expecting_continue)
        if not is_plain or self.protocol.access_log:
            await super().http1_response_header(data, end_stream)
            return
        self.response_func = None
        await self._send(response.message(self.keep_alive))
        self.stage = Stage.IDLE

    def __aiter__(self) -> AsyncGenerator[bytes]:
        """Iterate over the body. Sanic goes on reading after the answer, to reach the next request."""
        return self._rest() if self.stage is Stage.IDLE else super().__aiter__()  # type: ignore[no-untyped-call]

    async def _rest(self) -> AsyncGenerator[bytes]:
        """Yield the rest of the body once the request has been answered, or drop the rest from a connection that is to end."""
        if self.keep_alive:
            with suppress(BadRequest, PayloadTooLarge):
                async for data in super().__aiter__():  # type: ignore[no-untyped-call]
                    yield data
                return
        # Tell the client that nothing follows the answer, and drop the rest of the body until the client closes or is given up.
        # An immediate close would reset the connection, and many clients that are still sending would not read the answer.
        transport = self.protocol.transport
        if transport is not None and not transport.is_closing() and transport.can_write_eof():  # not with TLS
            transport.write_eof()
        while True:
            self.recv_buffer.clear()
            await self._receive_more()
