"""Scaler: the one part of a stack with the Docker socket. It can read and set the number of two services' tasks, nothing else.

    GET /nodes                     -> {"replicas": 2, "updating": false}
    PUT /nodes {"replicas": 3}     -> the same, after the change
    GET, PUT /frontends            -> the same for the frontends, where they are scaled
    anything wrong                 -> {"error": "..."} with 400, 404, 409 or 502

A program that may change services through the socket of a manager is root on every machine of the Swarm. The autoscaler, which
reads records of Redis, does not get the socket.
"""

import http.client
import json
import socket
from collections.abc import Mapping
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


class Tasks(msgspec.Struct, frozen=True):
    """Number of tasks that Swarm is told to run, and whether it is replacing them by new ones."""

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
        least: smallest number that is set.
        most: largest number that is set.

    Raises:
        Refused: from every method. The engine does not answer, or refuses.
    """

    def __init__(self, engine: Path, service: str, least: int, most: int) -> None:
        self._engine = engine
        self._service = service
        self._least, self._most = least, most

    def read(self) -> Tasks:
        """Return the present number."""
        return _tasks_of(self._found())

    def set(self, replicas: int) -> Tasks:
        """Set the number, unless tasks are being replaced. Tasks that go are told to stop, and finish what they have read."""
        if not self._least <= replicas <= self._most:
            why = f"{replicas} is not from {self._least} to {self._most}, the bounds of autoscale"
            raise Refused(HTTPStatus.BAD_REQUEST, why)
        service = self._found()
        before = _tasks_of(service)
        if before.updating:  # since the autoscaler has looked
            raise Refused(HTTPStatus.CONFLICT, f"the tasks of {self._service} are being replaced by new ones")
        service["Spec"]["Mode"]["Replicated"]["Replicas"] = replicas
        # The engine refuses when the service has changed since it was read.
        self._call(
            "POST",
            f"/services/{service['ID']}/update?version={service['Version']['Index']}",
            json.dumps(service["Spec"]),
        )
        log.info("set the number of tasks", service=self._service, tasks=replicas, before=before.replicas)
        return Tasks(replicas, updating=False)

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


def _tasks_of(service: dict[str, Any]) -> Tasks:
    state = (service.get("UpdateStatus") or {}).get("State", "")
    return Tasks(int(service["Spec"]["Mode"]["Replicated"].get("Replicas", 0)), updating=state in _UPDATING)


def server_of(scalers: Mapping[str, Scaler], address: tuple[str, int]) -> HTTPServer:
    """Return a server for the autoscaler, with scalers by path. The caller lets it serve."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _ANSWER_S

        def do_GET(self) -> None:
            """Answer the number of tasks. /livez tells that the scaler runs, whatever the engine does."""
            if self.path == "/livez":
                self._answer(HTTPStatus.OK, b"{}")
            else:
                self._call(None)

        def do_PUT(self) -> None:
            """Set the number of tasks."""
            size = self.headers.get("Content-Length", "")
            content = self.rfile.read(int(size)) if size.isdecimal() and int(size) <= _MOST_BYTES else b""
            self._call(content)

        def _call(self, content: bytes | None) -> None:
            try:
                scaler = scalers.get(self.path)
                if scaler is None:
                    raise Refused(HTTPStatus.NOT_FOUND, f"there is {' and '.join(scalers)} alone")
                tasks = scaler.read() if content is None else scaler.set(_wanted(content))
            except Refused as refusal:
                self._answer(refusal.status, msgspec.json.encode({"error": str(refusal)}))
            else:
                self._answer(HTTPStatus.OK, msgspec.json.encode(tasks))

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
