"""Servers of HTTP for tests in which clients go away."""

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class HttpServer(ThreadingHTTPServer):
    """A server that says nothing of a client that has gone: its thread may still run in a test that reads standard error."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print other errors only."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
