"""Channel over HTTP/1.1. Each request goes over a connection of its own, which is kept for the next request."""

import json
import resource
import select
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from cluster_serving.client.http.login import login
from cluster_serving.client.http.reply import server_timing_ms
from cluster_serving.node.load.channel import Outcome, Request
from cluster_serving.node.load.messages import OK, HttpTarget, Sample

CONNECTION_LOST = "ConnectionLost"

_AT_ONCE = 16
_READ_BYTES = 1 << 18
_PATIENCE_S = 5.0  # of a connection attempt, and of a write
_END_OF_HEAD, _LAST_CHUNK = b"\r\n\r\n", b"0\r\n\r\n"
_OK = 200
_SAMPLED = 8  # one of so many answers is looked at for its stages


class HttpChannel:
    """Posts requests to a frontend. Connections are made as they are needed."""

    at_once = _AT_ONCE

    def __init__(self, target: HttpTarget) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        url, headers = login(target.url, target.api_key)
        parts = urlsplit(url)
        is_secure = parts.scheme == "https"
        self._address = (parts.hostname or "", parts.port or (443 if is_secure else 80))
        self._context = ssl.create_default_context() if is_secure else None
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        path = f"{parts.path.rstrip('/')}{target.path}"
        self._head = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n{lines}"
        self._bodies = target.bodies
        self._idle: deque[_Connection] = deque()
        self._open: dict[int, _Connection] = {}  # by descriptor
        self._busy: dict[int, _Connection] = {}  # by number of the request
        self._news = select.epoll()
        self._answered = 0

    def fileno(self) -> int:
        """Return a descriptor that can be read when a connection has news."""
        return self._news.fileno()

    def send(self, requests: Sequence[Request]) -> list[Outcome]:
        """Send each request over an idle connection or a new connection."""
        lost: list[Outcome] = []
        for request in requests:
            body = self._bodies[request.number % len(self._bodies)]
            lines = f"X-Request-Timeout: {max(request.life_s, 0.001):.3f}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection: _Connection | None = None
            try:
                connection = self._idle.popleft() if self._idle else self._connect()
                connection.number = request.number
                connection.socket.sendall(f"{self._head}{lines}".encode() + body)
                self._busy[request.number] = connection
            except OSError as error:
                if connection is not None:
                    self._drop(connection)
                lost.append(Outcome(request.number, CONNECTION_LOST, str(error)))
        return lost

    def receive(self) -> list[Outcome]:
        """Read what has come over all connections."""
        found: list[Outcome] = []
        for descriptor, _ in self._news.poll(0):
            connection = self._open.get(descriptor)
            if connection is None:
                continue
            try:
                is_whole = connection.read()
            except (OSError, ValueError) as error:
                self._drop(connection)
                if self._busy.pop(connection.number, None) is not None:
                    found.append(Outcome(connection.number, CONNECTION_LOST, str(error)))
                continue
            if is_whole and self._busy.pop(connection.number, None) is not None:
                found.append(self._outcome(connection))
                if connection.is_ended:
                    self._drop(connection)
                else:
                    self._idle.append(connection)
        return found

    def give_up(self, number: int) -> None:
        """Close the connection of a request."""
        connection = self._busy.pop(number, None)
        if connection is not None:
            self._drop(connection)

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._open.values()):
            self._drop(connection)
        self._news.close()

    def _connect(self) -> "_Connection":
        plain = socket.create_connection(self._address, _PATIENCE_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = self._address[0]
        connection = _Connection(self._context.wrap_socket(plain, server_hostname=name) if self._context else plain)
        self._open[connection.descriptor] = connection
        self._news.register(connection.descriptor, select.EPOLLIN)
        return connection

    def _drop(self, connection: "_Connection") -> None:
        self._open.pop(connection.descriptor, None)
        with suppress(ValueError):
            self._idle.remove(connection)
        connection.socket.close()  # takes it out of the epoll, too

    def _outcome(self, connection: "_Connection") -> Outcome:
        status, number = connection.status, connection.number
        if status != _OK:
            try:
                reason = str(json.loads(connection.body)["error"])
            except (ValueError, LookupError, TypeError):
                reason = connection.body[:400].decode(errors="replace")
            return Outcome(number, f"HTTP {status}", reason)
        self._answered += 1
        if self._answered % _SAMPLED:
            return Outcome(number)
        stages = server_timing_ms(connection.header("server-timing"))
        return Outcome(number, OK, sample=Sample(stages) if stages else None)


class _Connection:
    """Connection, the number of its last request, and the answer as far as it has come."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.descriptor = connected.fileno()
        self.number = -1
        self.is_ended = False
        self.body = b""
        self._head = b""
        self._received = b""

    @property
    def status(self) -> int:
        """Status of the last answer."""
        return int(self._head[9:12])

    def header(self, name: str) -> str:
        """Return the value of a header of the last answer, or an empty text."""
        start = f"\r\n{name}:".encode()
        at = self._head.lower().find(start)
        return self._head[at + len(start) :].partition(b"\r\n")[0].decode(errors="replace").strip() if at >= 0 else ""

    def read(self) -> bool:
        """Read what has come, and return whether an answer is whole.

        Raises:
            OSError: the connection has ended.
            ValueError: the other side speaks no HTTP/1.1.
        """
        try:
            self._received += self._receive()
        except ssl.SSLWantReadError:  # a session ticket came, or a part of a TLS record
            return False
        head, found, body = self._received.partition(_END_OF_HEAD)
        if not found:
            return False
        if not head.startswith(b"HTTP/1."):
            raise ValueError("the answer is no HTTP/1.1")
        self._head = head
        if self.header("transfer-encoding").lower() == "chunked":
            if not body.endswith(_LAST_CHUNK):
                return False
        elif len(body) < int(self.header("content-length") or 0):
            return False
        self.body, self._received = body, b""
        self.is_ended = self.header("connection").lower() == "close"
        return True

    def _receive(self) -> bytes:
        if not isinstance(self.socket, ssl.SSLSocket):
            found = self.socket.recv(_READ_BYTES)
        else:
            self.socket.setblocking(False)
            try:
                found = self.socket.recv(_READ_BYTES)
                while self.socket.pending():
                    found += self.socket.recv(_READ_BYTES)
            finally:
                self.socket.settimeout(_PATIENCE_S)
        if not found:
            raise ConnectionError("closed by the frontend")
        return found
