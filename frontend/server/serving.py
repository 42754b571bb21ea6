"""Serving in a process of a frontend: requests on inherited sockets are answered, until SIGTERM."""

import asyncio
import ctypes
import faulthandler
import gc
import logging
import resource
import signal
import socket
import ssl
import sys
from typing import Any

import msgspec
import structlog
import uvloop
from sanic.application.state import ApplicationServerInfo
from sanic.http import Stage
from sanic.http.constants import HTTP
from sanic.server import serve as sanic_serve

from cluster_serving.client.servers.process import log
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.parent import Parent
from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
from cluster_serving.frontend.app import create_app
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.config.tls import server_context
from cluster_serving.frontend.http.connection import HEADER_TIMEOUT_S, Connection, configure
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.server.child import STACKS_SIGNAL, Spec

logger = structlog.get_logger(__name__)

_BACKLOG = 1024
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 20
"""Blocks from this size on go back to the kernel when they are freed. By itself glibc keeps ever larger blocks."""
_LOOK_S = 0.02
_LINGER_S = 0.5
"""Seconds that a draining process keeps a connection without a request, because a request may be on its way."""
_NOTHING_ASKED = "NONE http:///*"
"""Request that Sanic logs, with status 500, for a connection that ends before the headers of a request."""


class _Process:
    def __init__(self, spec: Spec, config: FrontendConfig) -> None:
        self._spec = spec
        self._config = config
        self._app = create_app(config, Timers(config.workers, spec.timers), spec.number)
        configure(self._app, config)
        # Sanic rewrites its own code from the facts about its servers, and is then a tenth faster.
        self._app.state.server_info.append(ApplicationServerInfo({"version": HTTP.VERSION_1}))
        self._connections: set[Any] = set()
        self._stop = asyncio.Event()

    async def start(self) -> list[Any]:
        """Accept connections. Return the servers, one for each socket."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        tls: ssl.SSLContext | None = None
        if self._spec.https:
            config = self._config
            token = config.https_key_store_token
            password = token.get_secret_value() if token else None
            tls = server_context(config.https_key_store_path, password, config.https_key_path)
        servers = [await self._server(descriptor, None) for descriptor in self._spec.http]
        servers += [await self._server(descriptor, tls) for descriptor in self._spec.https]
        await servers[0].startup()
        await servers[0].before_start()
        for server in servers:
            await server.start_serving()
        await servers[0].after_start()
        # Objects of the start stay, so the collector need not look at these objects again and again.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        return servers

    async def run(self, servers: list[Any]) -> None:
        """Serve until SIGTERM, then answer the requests received and close the connections to Redis.

        At a stop, Sanic closes the idle connections and then waits for the rest in vain: a connection that becomes idle later
        stays open until its time is up. So each connection is checked until idle. No connection is closed at once, because a
        request may be on its way, and the answer to the request tells the client that the connection ends.
        """
        await self._stop.wait()
        for server in servers:
            server.close()
        self._app.config.KEEP_ALIVE = False  # for requests that are read from now on
        await servers[0].before_stop()
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        while self._connections and clock() - begun_s < self._config.drain_timeout_s:
            for connection in list(self._connections):
                if connection.http is not None and connection.http.stage is not Stage.IDLE:
                    connection.http.keep_alive = False
                elif clock() - begun_s > _LINGER_S and not connection.recv_buffer:
                    connection.close()
            await asyncio.sleep(_LOOK_S)
        if self._connections:
            logger.warning("requests given up", reason="drainTimeout is over", connections=len(self._connections))
        for connection in list(self._connections):
            connection.abort()
        await servers[0].after_stop()

    async def _server(self, descriptor: int, tls: ssl.SSLContext | None) -> Any:
        """Return a Sanic server for one socket. Sanic has no types for servers."""
        made: Any = sanic_serve(
            None,
            None,
            self._app,
            ssl=tls,
            sock=socket.socket(fileno=descriptor),
            loop=asyncio.get_running_loop(),
            protocol=Connection,
            backlog=_BACKLOG,
            run_async=True,
            connections=self._connections,
            asyncio_server_kwargs={"start_serving": False, "ssl_handshake_timeout": tls and HEADER_TIMEOUT_S},
        )
        return await made


class _ToStructlog(logging.Handler):
    """Log handler that turns records of libraries, Sanic above all, into lines of our log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        if record.name != "sanic.access":
            level = record.levelname.lower()
            getattr(logger, level, logger.error)(record.getMessage(), logger=record.name, exc_info=record.exc_info)
            return
        said = vars(record)
        if said["byte"] == "DISCONNECTED" or (said["request"] == _NOTHING_ASKED and said["status"] == 500):
            return  # the end of a connection, not a request
        fields = {"client": said["host"], "request": said["request"], "status": said["status"], "bytes": said["byte"]}
        took = str(said["duration"]).strip().removesuffix("ms")
        logger.info("request", **fields, **({"ms": float(took)} if took else {}))


def serve(parent: Parent) -> None:
    """Answer requests as the spec on standard input says. Tell the parent when ready, or the fault of the start."""
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # Allow as many connections as this user may have. 1024 is usual.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=Spec)
    faulthandler.register(STACKS_SIGNAL, spec.stacks)
    config = FrontendConfig.model_validate(spec.config)
    hide(*secrets_of_config(config))
    log.configure(parent.child_name, config.log_level)
    # Sanic and asyncio log through our log, from these levels on.
    handler = _ToStructlog()
    for name, level in (
        ("sanic.root", logging.WARNING),
        ("sanic.server", logging.WARNING),
        ("sanic.error", logging.WARNING),
        ("sanic.access", logging.INFO),
        ("asyncio", logging.WARNING),
    ):
        library = logging.getLogger(name)
        library.handlers = [handler]
        library.setLevel(level)
        library.propagate = False
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            process = _Process(spec, config)
            servers = runner.run(process.start())
        except (Fault, ValueError) as fault:
            code = fault.exit_code if isinstance(fault, Fault) else ExitCode.CONFIG
            parent.tell_failure(str(fault), code)
            sys.exit(code)
        parent.tell_ready()
        runner.run(process.run(servers))
