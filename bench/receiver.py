"""A real receiver of callbacks, on this machine: fails, hangs and redirects at random, and notes what it has taken."""

import base64
import hmac
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, cast

FAULTS = ("error", "hang", "redirect", "cut")
_OLDEST_S = 300


class Receiver(ThreadingHTTPServer):
    """Receiver of signed results.

    Args:
        key: signing key.
        forbidden: URL to which it redirects.
        faults: share of the posts that it does not take.
        hang_s: longest time for which it hangs.
        seed: seed of the faults.

    Attributes:
        taken: body and HTTP status of each message that it has answered with 204.
        posts: number of posts by outcome: `taken`, `again` for a repeated message, `forged`, or a fault.
    """

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, key: bytes, forbidden: str, faults: float, hang_s: float, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: dict[str, tuple[bytes, int]] = {}
        self.posts: Counter[str] = Counter()
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._key = key
        self._forbidden = forbidden
        self._faults = faults
        self._hang_s = hang_s
        self._random = Random(seed)
        self._next: list[str] = []
        self._lock = threading.Lock()
        self._end = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a sender that was killed."""

    def take(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one post."""
        message = str(handler.headers["webhook-id"])
        outcome = self._outcome(handler, message, body)
        with self._lock:
            self.posts[outcome] += 1
        match outcome:
            case "hang":
                self._end.wait(self._hang_s)
            case "cut":
                pass
            case "redirect":
                _answer(handler, 307, Location=self._forbidden)
            case "error":
                _answer(handler, 500)
            case "forged":
                _answer(handler, 401)
            case _:
                _answer(handler, 204)

    def fail_next(self, *faults: str) -> None:
        """Do not take the next posts, each with one of `FAULTS`."""
        self._next += faults

    def end(self) -> None:
        """Let hanging posts go, and stop."""
        self._end.set()
        self.shutdown()

    def _outcome(self, handler: BaseHTTPRequestHandler, message: str, body: bytes) -> str:
        stamp = str(handler.headers["webhook-timestamp"])
        digest = hmac.digest(self._key, f"{message}.{stamp}.".encode() + body, "sha256")
        signature = f"v1,{base64.b64encode(digest).decode()}"
        is_genuine = hmac.compare_digest(str(handler.headers["webhook-signature"]), signature)
        if not is_genuine or abs(time.time() - int(stamp)) > _OLDEST_S:
            return "forged"
        with self._lock:
            if self._next:
                return self._next.pop(0)
            if self._random.random() < self._faults:
                return self._random.choice(FAULTS)
            is_new = message not in self.taken
            self.taken[message] = body, int(handler.headers["Result-Status"])
        return "taken" if is_new else "again"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Read the body, and let the receiver answer."""
        cast(Receiver, self.server).take(self, self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


def _answer(handler: BaseHTTPRequestHandler, status: int, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()


@contextmanager
def receiver(
    key: bytes, forbidden: str = "http://127.0.0.1:1/", faults: float = 0.0, hang_s: float = 15.0, seed: int = 0
) -> Generator[Receiver]:
    """A receiver for a block. The arguments are those of `Receiver`."""
    with Receiver(key, forbidden, faults, hang_s, seed) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.end()
            thread.join()
