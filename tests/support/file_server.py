"""A web server of a test's own: it serves what it is given, and counts who asks."""

import hashlib
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from support.http_server import HttpServer


@dataclass
class Page:
    """An answer; one with an `etag` can be resumed. `cut` connections end after half of what is left, and `then` stands there."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    etag: bool = True
    cut: int = 0
    then: "Page | None" = None
    go_on: threading.Event | None = None  # wait for it in the middle


class FileServer:
    """Its `pages` by path, and the `asked` paths with their queries, and with the `Authorization` that came along."""

    def __init__(self, certificates: Path | None = None) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, str]] = []
        served = self

        class Handler(_Handler):
            server_of_test = served

        self._server = HttpServer(("127.0.0.1", 0), Handler)
        self._scheme = "http"
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def url(self, path: str, login: str = "") -> str:
        """Return the URL of a page."""
        return f"{self._scheme}://{login}localhost:{self._server.server_port}{path}"

    def put(self, path: str, body: bytes) -> str:
        """Serve a file; its checksum."""
        self.pages[path] = Page(body)
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_of_test: FileServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        self.server_of_test.asked.append((self.path, self.headers.get("Authorization", "")))
        page = self.server_of_test.pages.get(self.path.partition("?")[0], Page(status=404))
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        body = page.body[start:]
        self.send_response(206 if start else page.status)
        headers = {"Content-Length": str(len(body))} | page.headers
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(page.body) - 1}/{len(page.body)}"
        if page.etag:
            headers["ETag"] = f'"{hashlib.sha256(page.body).hexdigest()}"'
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.wfile.flush()
        if page.cut:
            page.cut -= 1
            if page.then is not None:
                self.server_of_test.pages[self.path] = page.then
            self.close_connection = True
            return
        if page.go_on is not None:
            page.go_on.wait(60)
        self.wfile.write(body[half:])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing."""


@contextmanager
def file_server(certificates: Path | None = None) -> Generator[FileServer]:
    """A server for a block; with certificates it speaks HTTPS."""
    server = FileServer(certificates)
    try:
        yield server
    finally:
        server.close()
