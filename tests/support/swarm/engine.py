"""Docker engine of a manager, as far as the scaler calls it: one service behind a Unix socket.

For tests of what the scaler does with each answer; a real engine has its turn in tests/system/test_swarm_autoscale.py.
"""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Engine:
    """The service `name`, and what was asked.

    Attributes:
        service: the service as the engine's API describes it.
        updates: number of tasks of each update.
        meanwhile: somebody else changes the service between a look and an update.
    """

    def __init__(self, name: str, replicas: int) -> None:
        self.service: dict[str, Any] = {
            "ID": "abc",
            "Version": {"Index": 7},
            "Spec": {
                "Name": name,
                "TaskTemplate": {"ContainerSpec": {"Image": "node:1"}, "ForceUpdate": 3},
                "Mode": {"Replicated": {"Replicas": replicas}},
            },
        }
        self.updates: list[int] = []
        self.meanwhile = False

    def update(self, index: int, spec: dict[str, Any]) -> str:
        """Change the service. Return a refusal, or nothing."""
        self.service["Version"]["Index"] += self.meanwhile
        if index != self.service["Version"]["Index"]:
            return "rpc error: code = Unknown desc = update out of sequence"
        self.service["Version"]["Index"] += 1
        self.service["Spec"] = spec
        self.updates.append(spec["Mode"]["Replicated"]["Replicas"])
        return ""


@contextmanager
def running(engine: Engine, path: Path) -> Generator[None]:
    """Serve an engine at a socket, for a block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == f"/services/{engine.service['Spec']['Name']}":
                self._answer(200, engine.service)
            else:
                self._answer(404, {"message": f"service {self.path.rpartition('/')[2]} not found"})

        def do_POST(self) -> None:
            url = urlsplit(self.path)
            assert url.path == f"/services/{engine.service['ID']}/update"
            spec = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            refusal = engine.update(int(parse_qs(url.query)["version"][0]), spec)
            self._answer(500 if refusal else 200, {"message": refusal} if refusal else {"Warnings": None})

        def _answer(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            pass

    with ThreadingUnixStreamServer(str(path), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
