"""One HTTP connection of Sanic's, with time limits for a slow sender and for the rest of a body."""

import asyncio
from time import monotonic
from typing import Any

from sanic import Sanic
from sanic.exceptions import RequestTimeout, ServiceUnavailable
from sanic.http import Stage
from sanic.http.http1 import HTTP_CONTINUE
from sanic.server import HttpProtocol

from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.http.stream import Stream, StreamRequest

HEADER_TIMEOUT_S = 20.0
KEEP_ALIVE_S = 75.0
LINGER_S = 5.0
"""Seconds that a client may go on sending a body after the answer."""

_LEAST_LOOK_S, _LONGEST_LOOK_S = 0.1, 10.0
_PROBE_S = 0.5


class Connection(HttpProtocol):
    """Sanic's connection, with the time of a request counted from its first byte.

    Sanic restarts the clock with each packet, so that a byte now and then would hold a request open.
    """

    HTTP_CLASS = Stream
    __slots__ = ("_ended", "_news")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._http: Stream | None = None  # until the connection's task begins
        self._ended = False
        """True once the client has ended its sending."""
        self._news: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client. Sanic wakes an event too, which nothing waits for, and reads its settings by a slower way."""
        buffer, http, news = self.recv_buffer, self._http, self._news
        buffer += data
        if len(buffer) >= self.app.config["REQUEST_BUFFER_SIZE"] and self.transport is not None:
            self.transport.pause_reading()
        if news is not None and not news.done():
            news.set_result(None)
        if http is not None and http.stage is Stage.IDLE and not http.request_body:
            self._time = monotonic()
            http.has_waited = True

    async def receive_more(self) -> None:
        """Wait for more bytes from the client. Sanic waits for an event, at three times the cost."""
        transport: Any = self.transport
        if self._ended:
            transport.close()  # which cancels this task once the answers have left
        else:
            transport.resume_reading()
        news: asyncio.Future[None] = self.loop.create_future()
        self._news = news
        await news

    def eof_received(self) -> bool:
        """Note the end of the client's sending. Return whether the connection stays open for answers, as `nc -N` expects."""
        transport: Any = self.transport
        lacks_bytes = self._news is not None and not self._news.done()
        if lacks_bytes or not transport.can_write_eof():  # asyncio closes both directions of TLS together
            return False
        self._ended = True
        self.loop.call_later(_PROBE_S, self._probe)
        return True

    def _probe(self) -> None:
        """Send an interim response, to find out whether a client that has ended its sending still reads.

        The host of a closed client resets the connection at the first probe. The second probe then fails, the connection is lost,
        and the records of the request are taken back.
        """
        http = self.http
        if http is None or self.transport is None or self.transport.is_closing():
            return
        if http.stage is Stage.HANDLER and http.request.version != "1.0":
            self.transport.write(HTTP_CONTINUE)
        self.loop.call_later(_PROBE_S, self._probe)

    def abort(self) -> None:
        """Close at once. Sanic's method forgets the transport, and then fails over a request that has not come."""
        if self.transport is not None:
            self.transport.abort()

    def check_timeouts(self) -> None:
        """End a request that takes too long.

        The check goes on after an answer that says so, because a body may still be missing.
        """
        http, task = self.http, self._task
        if http is None or task is None:
            return
        limit_s: float
        error: Exception | None
        if http.stage is Stage.IDLE:
            # Without an error, the connection is closed without an answer.
            limit_s, error = (LINGER_S if http.request_body else self.keep_alive_timeout), None
        elif http.stage is Stage.REQUEST:
            limit_s, error = self.request_timeout, RequestTimeout("the request took too long to arrive")
        elif http.stage is Stage.HANDLER and http.request_body:
            limit_s, error = self.app.config.BODY_TIMEOUT, RequestTimeout("the request took too long to arrive")
        else:
            limit_s, error = self.response_timeout, ServiceUnavailable("the request took too long")
        left_s = limit_s - (monotonic() - self._time)
        if left_s < 0:
            self._time = monotonic()
            http.exception = error
            task.cancel()
        shortest_s = min(_LONGEST_LOOK_S, self.request_timeout / 2)
        self._callback_check_timeouts = self.loop.call_later(
            max(_LEAST_LOOK_S, min(left_s, shortest_s)), self.check_timeouts
        )


def configure(app: Sanic[Any, Any], config: FrontendConfig) -> None:
    """Set Sanic's limits, and the class of the requests."""
    app.request_class = StreamRequest
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
            # The last resort: a handler ends by itself after `timeout_s`, and the body before the handler had as long.
            "RESPONSE_TIMEOUT": 2 * timeout_s + 10,
        }
    )
