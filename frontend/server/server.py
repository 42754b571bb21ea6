"""The frontend's own process: opens the ports, starts the processes that answer, restarts dead processes, and stops them all.

Sanic's manager is not used. The manager calls a killed worker FAILED and starts no successor. It wakes up ten times a second.
While it stops, a connection that becomes idle stays open until the time is up. The loop below does the rest of the manager's
work.

A signal handler only queues, and the loop acts. All answers are given by `process.py`.
"""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Mapping

import structlog

from cluster_serving.client.servers.process import log as logs
from cluster_serving.client.servers.process.backoff import Backoff
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
from cluster_serving.frontend.config.loading import check_files
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.server.child import Child
from cluster_serving.frontend.server.listeners import Listener, listen

log = structlog.get_logger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_GRACE_S = 5.0
"""Seconds that a process may take to end, beyond `drainTimeout`."""
_STEADY_S = 10.0
_LONGEST_PAUSE_S = 5.0


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
        self._children: dict[int, Child] = {}
        self._due_s = dict.fromkeys(range(config.workers), 0.0)
        """Time to start each process that does not run, by number."""
        self._backoffs = {number: Backoff(most_s=_LONGEST_PAUSE_S) for number in range(config.workers)}
        self._signals: deque[int] = deque()
        self._wake_fd, self._ring_fd = os.pipe()
        self._was_ready = False
        self._deadline_s: float | None = None
        """Time at which the processes that still run are killed. None: not stopping."""
        self._exit = ExitCode.OK

    def run(self) -> int:
        """Serve until a signal, or until the start fails."""
        os.set_blocking(self._ring_fd, False)
        os.set_blocking(self._wake_fd, False)
        signal.set_wakeup_fd(self._ring_fd, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda number, _frame: self._signals.append(number))
        if os.getpid() == 1:
            # SIGCHLD wakes the loop: process 1 has to reap orphans of other processes.
            signal.signal(signal.SIGCHLD, _ignore)
        while self._deadline_s is None or self._children:
            self._start_those_due()
            self._wait()
            while self._signals:
                name = signal.Signals(self._signals.popleft()).name
                if self._deadline_s is None:
                    log.info("stopping", signal=name, within_s=self._config.drain_timeout_s)
                    self._stop(signal.SIGTERM)
                else:
                    log.warning("stopping at once", signal=name)
                    self._exit = ExitCode.FAILED
                    self._deadline_s = 0.0
            self._bury_the_dead()
            self._reap_strangers()
            if self._deadline_s is not None and time.monotonic() >= self._deadline_s:
                for child in self._children.values():
                    child.signal(signal.SIGKILL)
        log.info("stopped")
        return self._exit

    def _start_those_due(self) -> None:
        if self._deadline_s is not None:
            return
        for number, due_s in list(self._due_s.items()):
            if due_s <= time.monotonic():
                del self._due_s[number]
                try:
                    self._children[number] = Child(number, self._listeners, self._config, self._timers.fd)
                except OSError as error:  # no memory, or too many processes
                    if not self._was_ready:
                        raise Fault(f"a process could not be started: {error.strerror}") from error
                    log.error("a process could not be started", number=number, reason=error.strerror)
                    self._due_s[number] = time.monotonic() + _LONGEST_PAUSE_S

    def _wait(self) -> None:
        """Wait for a signal, for the report or the death of a process, or for the next due time.

        Log once when all processes are ready.
        """
        poll = select.poll()
        poll.register(self._wake_fd, select.POLLIN)
        starting = {child.ready_fd: child for child in self._children.values() if child.ready_fd >= 0}
        for descriptor in (*starting, *(child.death_fd for child in self._children.values())):
            poll.register(descriptor, select.POLLIN)
        due = list(self._due_s.values()) if self._deadline_s is None else [self._deadline_s]
        wait_ms = max(0.0, min(due) - time.monotonic()) * 1000 + 1 if due else None
        ready = {descriptor for descriptor, _ in poll.poll(wait_ms)}
        if self._wake_fd in ready:
            os.read(self._wake_fd, 4096)
        for descriptor in starting.keys() & ready:
            starting[descriptor].hear()
        if not self._was_ready and not self._due_s and all(child.is_ready for child in self._children.values()):
            self._was_ready = True
            redis, job = self._config.redis_settings().describe(), self._config.job_name
            urls = {listener.scheme: listener.url for listener in self._listeners}
            log.info("listening", **urls, redis=redis, job=job, processes=self._config.workers)

    def _stop(self, number: int) -> None:
        self._deadline_s = time.monotonic() + self._config.drain_timeout_s + _GRACE_S
        for listener in self._listeners:
            listener.close()
        for child in self._children.values():
            child.signal(number)

    def _bury_the_dead(self) -> None:
        """Reap the processes that have ended, and plan the start of their successors, unless the frontend stops."""
        for number, child in list(self._children.items()):
            reason = child.reap()
            if reason is None:
                continue
            del self._children[number]
            if self._deadline_s is not None:
                if child.is_ready and reason != "exit code 0":
                    log.warning("a process ended before it had answered all requests", number=number, reason=reason)
            elif not self._was_ready:
                # A frontend that cannot start at all ends.
                text, code = child.failure or (f"a process could not start: {reason}", ExitCode.FAILED)
                log.error("cannot start", reason=text)
                self._exit = ExitCode(code)
                self._stop(signal.SIGKILL)
            else:
                if child.is_ready and time.monotonic() - child.began_s > _STEADY_S:
                    self._backoffs[number].reset()
                pause_s = self._backoffs[number].next_s()
                told = child.failure[0] if child.failure else reason
                log.error("a process died", number=number, reason=told, again_in_s=round(pause_s, 2))
                self._due_s[number] = time.monotonic() + pause_s

    def _reap_strangers(self) -> None:
        """Reap the orphans of other processes, as process 1 of a container."""
        if os.getpid() != 1:
            return
        own = {child.pid for child in self._children.values()}
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid in own:  # a child of our own is buried first, in the next turn
                return
            os.waitpid(found.si_pid, 0)


def _ignore(_number: int, _frame: object) -> None:
    """Do nothing. SIG_IGN would reap a process before the server learns how it ended."""
