"""One HTTP connection: Sanic's, which waits for ever neither for a sender that is slow nor for what is left of a body."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from time import monotonic
from typing import Any

from sanic import Sanic
from sanic.exceptions import BadRequest, BadURL, PayloadTooLarge, RequestTimeout, ServiceUnavailable
from sanic.http import Http, Stage
from sanic.server import HttpProtocol

from cluster_serving.frontend.settings import FrontendConfig

HEADER_TIMEOUT_S = 20.0
KEEP_ALIVE_S = 75.0
LINGER_S = 5.0
"""How long a client may go on sending a body after it was answered."""

_LEAST_LOOK_S, _LONGEST_LOOK_S = 0.1, 10.0


class _Stream(Http):
    """Sanic's, less what it fails at."""

    __slots__ = ("has_waited",)

    def __init__(self, protocol: HttpProtocol) -> None:
        super().__init__(protocol)  # type: ignore[no-untyped-call]
        self.request_body = None  # looked at before the first request
        self.has_waited = False
        """Whether others have had their turn since the last request."""

    def create_empty_request(self) -> None:
        try:
            super().create_empty_request()
        except BadURL:  # Sanic answers a request with a broken URL by a request with the same URL, and fails again
            self.url = None
            super().create_empty_request()

    async def http1_request_header(self) -> None:
        """Read one; of requests that came together only one in each turn of the loop: the others are not to wait for them all."""
        if not self.has_waited:
            await asyncio.sleep(0)
        self.has_waited = False
        await super().http1_request_header()  # type: ignore[no-untyped-call]

    def __aiter__(self) -> AsyncGenerator[bytes]:
        """The body. Sanic goes on reading it after the answer too, for the sake of the next request."""
        return self._rest() if self.stage is Stage.IDLE else super().__aiter__()  # type: ignore[no-untyped-call]

    async def _rest(self) -> AsyncGenerator[bytes]:
        """What is left of the body once the request has been answered."""
        if self.keep_alive:
            with suppress(BadRequest, PayloadTooLarge):
                async for data in super().__aiter__():  # type: ignore[no-untyped-call]
                    yield data
                return
        await self._part()

    async def _part(self) -> None:
        """Say that nothing follows the answer, and throw away what still comes, until the client closes or is given up.

        Closed at once, the connection would be reset, and many clients that are still sending would not read the answer.
        """
        transport = self.protocol.transport
        if transport is not None and not transport.is_closing() and transport.can_write_eof():  # not with TLS
            transport.write_eof()
        while True:
            self.recv_buffer.clear()
            await self._receive_more()


class Connection(HttpProtocol):
    """Counts the time of a request from its first byte; Sanic begins anew with each packet: a byte now and then holds it."""

    HTTP_CLASS = _Stream
    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        """Take what the client sends."""
        begun_s, http = self._time, self.http
        super().data_received(data)
        if http is None:
            return
        if http.stage is not Stage.IDLE or http.request_body:
            self._time = begun_s
        else:
            http.has_waited = True

    def abort(self) -> None:
        """Close at once; Sanic's forgets the transport, and then fails over a request that has not come."""
        if self.transport is not None:
            self.transport.abort()

    def check_timeouts(self) -> None:
        """End what takes too long; called again and again, also after an answer that says so: a body may still be missing."""
        http, task = self.http, self._task
        if http is None or task is None:
            return
        limit_s, error = self._limit(http)
        left_s = limit_s - (monotonic() - self._time)
        if left_s < 0:
            self._time = monotonic()
            http.exception = error
            task.cancel()
        shortest_s = min(_LONGEST_LOOK_S, self.request_timeout / 2)
        self._callback_check_timeouts = self.loop.call_later(
            max(_LEAST_LOOK_S, min(left_s, shortest_s)), self.check_timeouts
        )

    def _limit(self, http: Http) -> tuple[float, Exception | None]:
        """How long it may be as it is, and what the client is told then; None: nothing, it is closed."""
        if http.stage is Stage.IDLE:
            return (LINGER_S if http.request_body else self.keep_alive_timeout), None
        if http.stage is Stage.REQUEST:
            return self.request_timeout, RequestTimeout("the request took too long to arrive")
        if http.stage is Stage.HANDLER and http.request_body:
            return self.app.config.BODY_TIMEOUT, RequestTimeout("the request took too long to arrive")
        return self.response_timeout, ServiceUnavailable("the request took too long")


def configure(app: Sanic[Any, Any], config: FrontendConfig) -> None:
    """Give Sanic its limits."""
    timeout_s = config.request_timeout_s
    app.config.update(
        {
            "ACCESS_LOG": config.access_log,
            "AUTO_EXTEND": False,
            "BODY_TIMEOUT": timeout_s,
            "GRACEFUL_TCP_CLOSE_TIMEOUT": min(5.0, config.drain_timeout_s),
            "KEEP_ALIVE_TIMEOUT": KEEP_ALIVE_S,
            "REQUEST_MAX_SIZE": config.max_body_size,
            "REQUEST_TIMEOUT": min(HEADER_TIMEOUT_S, timeout_s),
            # The last resort: a handler ends by itself after `timeout_s`, and the body before it had as long.
            "RESPONSE_TIMEOUT": 2 * timeout_s + 10,
        }
    )
