"""Watch of the embedded Redis while a node uses the server: after its end, the server is started again with its data.

    runs ──ends, for any reason──► pause (backoff) ──► start, load the append-only file ──► runs
                                     ▲                               │
                                     └─────── does not start ◄───────┘

The file `watch.json` beside the data tells `status` the number of restarts, and the current problem.
"""

import os
import select
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path

import msgspec
import structlog

from cluster_serving.client.servers.process.backoff import Backoff
from cluster_serving.client.servers.process.whole_file import whole_file
from cluster_serving.node.job import detached, redis_server
from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.job.redis_server import Listener

log = structlog.get_logger(__name__)

_STEADY_S = 10.0  # a server with a longer life is in no restart loop
_LONGEST_PAUSE_S = 30.0  # between attempts that fail: each may read a large file up to the damaged place
_LINGERING_S = 1.0  # a killed process may still listen for a moment after it is no longer seen to run
_WATCH = "watch.json"


class Watched(msgspec.Struct, omit_defaults=True):
    """State of a watched server: restarts since its `start`, and the problem of a server that does not run."""

    restarts: int = 0
    last_restart_ms: int = 0
    problem: str = ""


def watched(directory: Path) -> Watched:
    """Read the state that the watch has written for the Redis of a directory."""
    try:
        return msgspec.json.decode((directory / _WATCH).read_bytes(), type=Watched)
    except (OSError, msgspec.DecodeError):
        return Watched()


def forget(directory: Path) -> None:
    """Remove the state, because a person has started the Redis of this directory."""
    (directory / _WATCH).unlink(missing_ok=True)


@contextmanager
def watching(directory: Path | None, port: int, password: str | None) -> "Generator[RedisWatch | None]":
    """Watch a Redis for a block. With `directory` None, Redis is not embedded, and there is no watch."""
    watch = RedisWatch(directory, port, password) if directory else None
    try:
        yield watch
    finally:
        if watch is not None:
            watch.stop()


class RedisWatch:
    """Thread that keeps an embedded Redis running, until `stop`.

    Args:
        directory: directory of the server.
        port: port of the server on 127.0.0.1.
        password: password of the server.
    """

    def __init__(self, directory: Path, port: int, password: str | None) -> None:
        self._directory = directory
        self._port = port
        self._password = password
        self._after_end = Backoff()
        self._after_failure = Backoff(first_s=1.0, most_s=_LONGEST_PAUSE_S)
        self._pause_s = 0.0
        self._ended_s = time.monotonic()
        """Time at which the watch saw the end of the server, by the monotonic clock."""
        self._told = ""
        self._stopping = threading.Event()
        # A daemon thread: the server may be loading for minutes, and a node that ends does not wait for the server.
        run = copy_context().run  # with the names of process and job for the log
        threading.Thread(target=run, args=(self._run,), name="redis-watch", daemon=True).start()

    def stop(self) -> None:
        """Start no further server from now on."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            running = redis_server.owned(self._directory)
            if running is not None:
                self._await_end(running)
                continue
            if self._stopping.wait(self._pause_s):
                return
            try:
                pid = self._started()
            except (RedisUnavailable, OSError) as error:
                if self._told != str(error):
                    log.error("the embedded Redis cannot be started again; further attempts follow", reason=str(error))
                self._told = str(error)
                self._pause_s = self._after_failure.next_s()
                self._note_alone(problem=str(error))
            else:
                self._note_alone()
                self._after_failure.reset()
                log.info("the embedded Redis is back", pid=pid, away_s=round(time.monotonic() - self._ended_s, 2))
                self._told = ""

    def _await_end(self, pid: int) -> None:
        began_s = time.monotonic()
        try:
            descriptor = os.pidfd_open(pid)  # works for a process of any parent, unlike a wait
        except ProcessLookupError:
            return
        try:
            select.select([descriptor], [], [])
        finally:
            os.close(descriptor)
        detached.ended(pid, 0)  # reaps a child of this process
        self._ended_s = time.monotonic()
        if self._ended_s - began_s > _STEADY_S:
            self._after_end.reset()
        self._pause_s = self._after_end.next_s()
        if not self._stopping.is_set():
            why = "killed; out of memory?" if redis_server.left_pid_file(self._directory) else "told to end"
            log.warning("the embedded Redis has ended, and is started again", pid=pid, why=why)
            with suppress(OSError), redis_server.only_one(self._port):
                if redis_server.owned(self._directory) is None:  # else another node has started it, and has noted that
                    self._note(problem="it has ended, and is being started again")

    def _started(self) -> int:
        """Start the server, unless a different process has started it, and return the server's process id."""
        give_up_s = time.monotonic() + _LINGERING_S
        while True:
            with redis_server.only_one(self._port):
                if redis_server.listener(self._port) is Listener.NOBODY:
                    started = redis_server.restart(self._directory, self._password)
                    self._note(restarts=watched(self._directory).restarts + 1)
                    return started
            if (pid := redis_server.owned(self._directory)) is not None:
                return pid
            if time.monotonic() > give_up_s:
                raise RedisUnavailable(f"another program listens on port {self._port}")
            time.sleep(_LINGERING_S / 20)

    def _note_alone(self, *, problem: str = "") -> None:
        """Note under the lock on the port, because another node may have counted a further start since."""
        with suppress(OSError), redis_server.only_one(self._port):
            self._note(problem=problem)

    def _note(self, *, restarts: int | None = None, problem: str = "") -> None:
        seen = watched(self._directory)
        if restarts is not None:
            seen = Watched(restarts, time.time_ns() // 1_000_000)
        seen.problem = problem
        # Without the file `status` knows less, but the watch goes on.
        with suppress(OSError), whole_file(self._directory / _WATCH) as stream:
            stream.write(msgspec.json.encode(seen))
