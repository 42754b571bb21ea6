"""A client of the frontend for loads: requests are made once, each goes over a connection that nobody else waits on."""

import json
import resource
import select
import socket
from collections import deque
from collections.abc import Sequence

from bench.queue_client import Answer
from bench.records import DISTINCT, jpeg, row

_AT_ONCE = 16
_READ_BYTES = 1 << 18
_POLL_S = 0.1
_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class HttpClient:
    """Sends numbered requests and gives what comes back; one thread may send while another receives.

    A connection without a request is used again; where there is none, another one is opened: nothing queues in the client.
    `at_once`: how many requests `send` takes at most.
    """

    def __init__(self, port: int, job: str, content: str) -> None:
        """Connect nothing yet.

        Args:
            port: of the frontend, on this machine.
            job: its name.
            content: "row": JSON of the tiny MLP; "jpeg": a picture as the whole body.
        """
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.at_once = _AT_ONCE
        self._port, self._path = port, f"/predict/{job}"
        self._kind = "application/json" if content == "row" else "image/jpeg"
        self._bodies = [_body(content, number) for number in range(DISTINCT)]
        self._idle: deque[_Connection] = deque()
        self._busy: dict[int, _Connection] = {}
        self._news = select.epoll()

    def send(self, numbers: Sequence[int], lives_s: Sequence[float] | None = None) -> int:
        """Send these requests, each with so many seconds to be answered in; how many there were."""
        for place, number in enumerate(numbers):
            connection = self._idle.popleft() if self._idle else self._connect()
            connection.number = number
            connection.socket.sendall(self._request(number, lives_s[place] if lives_s is not None else None))
        return len(numbers)

    def receive(self) -> list[Answer]:
        """Return the answers that have come whole; an empty list at the latest after a tenth of a second without anything."""
        found: list[Answer] = []
        for descriptor, _ in self._news.poll(_POLL_S):
            connection = self._busy[descriptor]
            answer = connection.read()
            if answer is None:
                continue
            found.append(answer)
            if connection.ended:
                del self._busy[descriptor]
                connection.socket.close()
            else:
                self._idle.append(connection)
        return found

    def close(self) -> None:
        """Close all connections."""
        for connection in self._busy.values():
            connection.socket.close()
        self._news.close()

    def _connect(self) -> "_Connection":
        connection = _Connection(self._port)
        descriptor = connection.socket.fileno()
        self._busy[descriptor] = connection
        self._news.register(descriptor, select.EPOLLIN)
        return connection

    def _request(self, number: int, life_s: float | None) -> bytes:
        body = self._bodies[number % DISTINCT]
        life = "" if life_s is None else f"X-Request-Timeout: {max(life_s, 0.001):.3f}\r\n"
        head = f"POST {self._path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {self._kind}\r\n{life}"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _Connection:
    """A connection, and the number of the request that it is busy with."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = -1
        self.ended = False
        self._received = b""

    def read(self) -> Answer | None:
        """The answer, once all of it has come; a connection that breaks is a failure of its request."""
        try:
            chunk = self.socket.recv(_READ_BYTES)
        except ConnectionError:
            chunk = b""
        if not chunk:
            self.ended = True
            return Answer(self.number, b"connection lost")
        self._received += chunk
        end = self._received.find(_END)
        if end < 0 or len(self._received) < end + len(_END) + _length(self._received[:end]):
            return None
        status = self._received[9:12]
        self._received = b""
        return Answer(self.number, b"" if status == b"200" else status)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(_LENGTH):
            return int(line[len(_LENGTH) :])
    return 0


def _body(content: str, number: int) -> bytes:
    if content == "jpeg":
        return jpeg(number)
    return json.dumps({"instances": [{"x": row(number).tolist()}]}).encode()
