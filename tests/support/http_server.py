"""Servers of HTTP for tests in which clients go away, or answers are strange."""

import socket
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from typing import Any


class HttpServer(ThreadingHTTPServer):
    """A server that says nothing of a client that has gone: its thread may still run in a test that reads standard error."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print other errors only."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def answering(*answers: Sequence[bytes]) -> Generator[str]:
    """Answer the requests of one connection after the other with these parts, and give the URL.

    Without a part, or after an empty part, the server hangs up.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)

        def serve() -> None:
            for parts in answers:
                connection, _ = listener.accept()
                with connection, suppress(ConnectionResetError):  # a channel that gives up may leave bytes unread
                    connection.recv(1 << 16)
                    for part in parts:
                        connection.sendall(part)
                    if parts and parts[-1]:
                        connection.recv(1 << 16)  # until the channel closes it, or asks again

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
