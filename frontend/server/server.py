"""The frontend's own process: opens the ports, starts the processes that answer, restarts dead processes, and stops them all.

Sanic's manager is not used. The manager calls a killed worker FAILED, starts no successor, and wakes up ten times a second. While
the manager stops, idle connections stay open until the time is up. The loop below does the rest of the manager's work.

A signal handler only queues, and the loop acts. All answers are given by `process.py`.
"""

import math
import os
import signal
import time
from collections import deque
from collections.abc import Mapping
from functools import partial

import structlog

from cluster_serving.client.servers.process import log as logs
from cluster_serving.client.servers.process.child import wait
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
from cluster_serving.frontend.config.loading import check_files
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.server.child import Child
from cluster_serving.frontend.server.listeners import Listener, listen
from cluster_serving.frontend.server.seat import Seat

log = structlog.get_logger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_GRACE_S = 5.0
"""Seconds that a process may take to end, beyond `drainTimeout`."""


def serve(config: FrontendConfig, ignored: Mapping[str, str]) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP.

    Args:
        config: settings of the frontend.
        ignored: keys without effect and the reasons, for the log.

    Returns:
        The exit code.

    Raises:
        Fault: the frontend could not start: a port is taken, or a file cannot be used.
    """
    hide(*secrets_of_config(config))
    logs.configure("frontend", config.log_level)
    for key, why in ignored.items():
        log.info("config key ignored", key=key, why=why)
    check_files(config)
    listeners = [listen("http", config.interface, config.port, config.workers)]
    if config.https_enabled:
        listeners.append(listen("https", config.interface, config.secure_port, config.workers))
    return Server(config, listeners).run()


class Server:
    """Processes of one frontend, one for each group of sockets in `listeners`."""

    def __init__(self, config: FrontendConfig, listeners: list[Listener]) -> None:
        self._config = config
        self._listeners = listeners
        self._timers = Timers(config.workers)
        self._seats = [
            Seat(number, partial(Child, number, listeners, config, self._timers.fd)) for number in range(config.workers)
        ]
        self._signals: deque[int] = deque()
        self._wake_fd, self._ring_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._served = False
        """True once all processes have been ready."""
        self._stopping = False
        self._kill_s = math.inf
        """Time at which the processes that still run are killed."""
        self._exit = ExitCode.OK

    def run(self) -> int:
        """Serve until a signal, or until the start fails."""
        signal.set_wakeup_fd(self._ring_fd, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda number, _frame: self._signals.append(number))
        if os.getpid() == 1:
            # SIGCHLD wakes the loop: process 1 has to reap orphans of other processes. SIG_IGN would reap a process before the
            # server learns how it ended.
            signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        while not self._stopping or self._children():
            self._start_due()
            self._wait()
            self._tell_listening()
            while self._signals:
                self._act_on(self._signals.popleft())
            self._bury_the_dead()
            self._reap_orphans()
            if time.monotonic() >= self._kill_s:
                self._kill_s = math.inf
                for child in self._children():
                    child.signal(signal.SIGKILL)
        log.info("stopped")
        return self._exit

    def _children(self) -> list[Child]:
        return [seat.child for seat in self._seats if seat.child is not None]

    def _start_due(self) -> None:
        for seat in self._seats:
            if self._stopping or not seat.is_due:
                continue
            try:
                seat.start()
            except OSError as error:  # no memory, or too many processes
                if not self._served:
                    raise Fault(f"a process could not be started: {error.strerror}") from error
                log.error("a process could not be started", number=seat.number, reason=error.strerror)

    def _wait(self) -> None:
        """Wait for a signal, for the message or the end of a process, or for the next time to act."""
        due_s = [self._kill_s] if self._stopping else [seat.due_s for seat in self._seats if seat.child is None]
        woken, speaking = wait(self._children(), self._wake_fd, min(due_s, default=math.inf) - time.monotonic())
        if woken:
            os.read(self._wake_fd, 4096)
        for child in speaking:
            child.hear()

    def _tell_listening(self) -> None:
        """Log once that all processes are ready."""
        if self._served or not all(seat.child and seat.child.ready is not None for seat in self._seats):
            return
        self._served = True
        redis, job = self._config.redis_settings().describe(), self._config.job_name
        urls = {listener.scheme: listener.url for listener in self._listeners}
        log.info("listening", **urls, redis=redis, job=job, processes=self._config.workers)

    def _act_on(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._stopping:
            log.warning("stopping at once", signal=name)
            self._exit = ExitCode.FAILED
            self._kill_s = 0.0
        else:
            log.info("stopping", signal=name, within_s=self._config.drain_timeout_s)
            self._stop(signal.SIGTERM)

    def _stop(self, number: int) -> None:
        self._stopping = True
        self._kill_s = time.monotonic() + self._config.drain_timeout_s + _GRACE_S
        for listener in self._listeners:
            listener.close()
        for child in self._children():
            child.signal(number)

    def _bury_the_dead(self) -> None:
        """Reap the processes that have ended, and schedule their successors, unless the frontend stops."""
        for seat in self._seats:
            child = seat.child
            if child is None or (reason := child.reap()) is None:
                continue
            child.hear()
            child.close()
            delay_s = seat.wait()
            if self._stopping:
                if child.ready is not None and reason != "exit code 0":
                    log.warning(
                        "a process ended before it had answered all requests", number=seat.number, reason=reason
                    )
            elif self._served:
                why = child.failure[0] if child.failure else reason
                log.error("a process died", number=seat.number, reason=why, again_in_s=round(delay_s, 2))
            else:
                # A frontend that cannot start at all ends.
                text, code = child.failure or (f"a process could not start: {reason}", ExitCode.FAILED)
                log.error("cannot start", reason=text)
                self._exit = ExitCode(code)
                self._stop(signal.SIGKILL)

    def _reap_orphans(self) -> None:
        """Reap the orphans of other processes, as process 1 of a container."""
        if os.getpid() != 1:
            return
        own = {child.pid for child in self._children()}
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid in own:  # an own child is buried first, in the next turn
                return
            os.waitpid(found.si_pid, 0)
