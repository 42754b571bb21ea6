"""Scaler: the one part of a stack with the Docker socket. It can read and set the number of one service's tasks, nothing else.

    GET /nodes                     -> {"replicas": 2, "updating": false}
    PUT /nodes {"replicas": 3}     -> the same, after the change
    anything wrong                 -> {"error": "..."} with 400, 404, 409 or 502

A program that may change services through the socket of a manager is root on every machine of the Swarm. The autoscaler, which
reads records of Redis, does not get the socket.
"""

import http.client
import json
import socket
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import structlog

log = structlog.get_logger(__name__)

_ANSWER_S = 10.0
_MOST_BYTES = 1000
_UPDATING = {"updating", "paused", "rollback_started", "rollback_paused"}


class Nodes(msgspec.Struct, frozen=True):
    """Number of nodes that Swarm is told to run, and whether it is replacing them by new ones."""

    replicas: int
    updating: bool


class Refused(Exception):
    """The scaler cannot do what it is asked. `status` is the status of the answer over HTTP."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Connection(http.client.HTTPConnection):
    """Connection to an engine through its Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=_ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_ANSWER_S)
        self.sock.connect(str(self._path))


class Scaler:
    """Number of tasks of one service.

    Args:
        engine: Unix socket of the engine of a manager.
        service: full name of the service.
        most: largest number that is set.

    Raises:
        Refused: from every method. The engine does not answer, or refuses.
    """

    def __init__(self, engine: Path, service: str, most: int) -> None:
        self._engine = engine
        self._service = service
        self._most = most

    def read(self) -> Nodes:
        """Return the present number."""
        return _nodes_of(self._found())

    def set(self, replicas: int) -> Nodes:
        """Set the number. Tasks that go are told to stop, and finish what they have read."""
        if not 0 <= replicas <= self._most:
            raise Refused(
                HTTPStatus.BAD_REQUEST, f"{replicas} is not from 0 to {self._most}, which is max of autoscale"
            )
        service = self._found()
        before = _nodes_of(service)
        service["Spec"]["Mode"]["Replicated"]["Replicas"] = replicas
        # The engine refuses when the service has changed since it was read.
        self._call(
            "POST",
            f"/services/{service['ID']}/update?version={service['Version']['Index']}",
            json.dumps(service["Spec"]),
        )
        log.info("set the number of tasks", service=self._service, tasks=replicas, before=before.replicas)
        return Nodes(replicas, updating=before.updating)

    def _found(self) -> dict[str, Any]:
        found: dict[str, Any] = self._call("GET", f"/services/{self._service}")
        if "Replicated" not in found["Spec"]["Mode"]:
            why = f"{self._service} has one task on every machine (--with global): there is no number to set"
            raise Refused(HTTPStatus.CONFLICT, why)
        return found

    def _call(self, method: str, path: str, body: str | None = None) -> Any:
        connection = _Connection(self._engine)
        try:
            # Without a version in the path, so that engines of every version understand.
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = json.loads(answer.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = f"the Docker engine at {self._engine} does not answer: {error}"
            raise Refused(HTTPStatus.BAD_GATEWAY, why) from error
        finally:
            connection.close()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            said = content.get("message", "") if isinstance(content, dict) else ""
            raise Refused(HTTPStatus.BAD_GATEWAY, f"the Docker engine refuses: {said or answer.reason}")
        return content


def _nodes_of(service: dict[str, Any]) -> Nodes:
    state = (service.get("UpdateStatus") or {}).get("State", "")
    return Nodes(int(service["Spec"]["Mode"]["Replicated"].get("Replicas", 0)), updating=state in _UPDATING)


def server_of(scaler: Scaler, address: tuple[str, int]) -> HTTPServer:
    """Return a server for the autoscaler. The caller lets it serve."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _ANSWER_S

        def do_GET(self) -> None:
            """Answer the number of nodes. /livez tells that the scaler runs, whatever the engine does."""
            if self.path == "/livez":
                self._answer(HTTPStatus.OK, b"{}")
            else:
                self._call(None)

        def do_PUT(self) -> None:
            """Set the number of nodes."""
            size = self.headers.get("Content-Length", "")
            content = self.rfile.read(int(size)) if size.isdecimal() and int(size) <= _MOST_BYTES else b""
            self._call(content)

        def _call(self, content: bytes | None) -> None:
            try:
                if self.path != "/nodes":
                    raise Refused(HTTPStatus.NOT_FOUND, "there is /nodes alone")
                nodes = scaler.read() if content is None else scaler.set(_wanted(content))
            except Refused as refusal:
                self._answer(refusal.status, msgspec.json.encode({"error": str(refusal)}))
            else:
                self._answer(HTTPStatus.OK, msgspec.json.encode(nodes))

        def _answer(self, status: HTTPStatus, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            with suppress(ConnectionError):  # a health check reads the first line and goes
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            """Log no request: the autoscaler asks every two seconds."""

    return HTTPServer(address, Handler)


class _Wanted(msgspec.Struct):
    replicas: int


def _wanted(content: bytes) -> int:
    try:
        return msgspec.json.decode(content, type=_Wanted).replicas
    except msgspec.MsgspecError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f'expected {{"replicas": N}}: {error}') from error
