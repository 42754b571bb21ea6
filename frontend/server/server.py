"""The frontend's own process: opens the ports, starts the processes that answer, restarts dead processes, and stops them all.

Sanic's manager is not used. The manager calls a killed worker FAILED, starts no successor, and wakes up ten times a second. While
the manager stops, idle connections stay open until the time is up. The loop below does the rest of the manager's work.

A signal handler only queues, and the loop acts. All answers are given by `process.py`.

    SIGTERM, SIGINT     stop: answer the open requests. The second one stops at once
    SIGHUP              reload: read the settings again, start a new generation of processes, let the old one drain once all new
                        processes are ready. With settings of no use the old generation stays. On a terminal: stop, because a
                        terminal that is closed sends the signal. Stays ignored where it was (nohup)
"""

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping

import structlog

from cluster_serving.client.servers.process import log as logs
from cluster_serving.client.servers.process.child import wait
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.progress_pipe import Event, Reporter
from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
from cluster_serving.frontend.config.loading import LoadedFrontendConfig, check_files
from cluster_serving.frontend.server.child import Child
from cluster_serving.frontend.server.generation import Generation
from cluster_serving.frontend.server.hangs import HangDetector
from cluster_serving.frontend.server.listeners import Address, Listener, close, listeners_of
from cluster_serving.frontend.server.redis_kind import check_redis

log = structlog.get_logger(__name__)

_TURN_S = 1.0

Load = Callable[[], LoadedFrontendConfig]


def serve(load: Load, report: Reporter) -> int:
    """Serve until SIGTERM or SIGINT.

    Args:
        load: reads the settings, at the start and at each reload.
        report: pipe to a waiting command. `ready` comes with the URL.

    Returns:
        The exit code.

    Raises:
        Fault: the frontend could not start: a setting is wrong, a port is taken, a file cannot be used, or Redis is a
            cluster.
    """
    loaded = load()
    logs.configure("frontend", loaded.config.log_level)
    return Server(load, loaded, report).run()


class Server:
    """Generations of one frontend's processes: the current one, the next one during a reload, and the old ones that drain."""

    def __init__(self, load: Load, loaded: LoadedFrontendConfig, report: Reporter) -> None:
        self._load = load
        self._report = report
        self._on_terminal = sys.stdout.isatty()  # asked now, because a closed terminal is no terminal any more
        self._current = _generation(loaded, {})
        self._next: Generation | None = None
        self._retired: list[Generation] = []
        self._detector = HangDetector()
        self._signals: deque[int] = deque()
        self._wake_fd, self._ring_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._reload_requested = False
        self._stopping = False
        self._exit = ExitCode.OK

    def run(self) -> int:
        """Serve until a signal, or until the start fails."""
        signal.set_wakeup_fd(self._ring_fd, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _frame: self._signals.append(number))
        if os.getpid() == 1:
            # SIGCHLD wakes the loop: process 1 has to reap orphans of other processes. SIG_IGN would reap a process before the
            # server learns how it ended.
            signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        while not self._stopping or self._children():
            self._start_due()
            self._wait()
            while self._signals:
                self._act_on(self._signals.popleft())
            self._bury_the_dead()
            self._reap_orphans()
            self._detector.look()
            for generation in self._generations():
                generation.kill_the_hung(self._detector)
            self._advance()
        log.info("stopped")
        return self._exit

    def _generations(self) -> list[Generation]:
        return [self._current, *([self._next] if self._next else []), *self._retired]

    def _children(self) -> list[Child]:
        return [child for generation in self._generations() for child in generation.children]

    def _start_due(self) -> None:
        for generation in self._generations():
            try:
                generation.act()
            except OSError as error:
                why = f"a process could not be started: {error.strerror}"
                if generation is self._current:
                    raise Fault(why) from error
                self._give_up(generation, why)

    def _wait(self) -> None:
        """Wait for a signal, for the message or the end of a process, for the next time to act, or for the next look for hangs."""
        due_s = min(generation.due_s for generation in self._generations())
        woken, speaking = wait(self._children(), self._wake_fd, min(due_s - time.monotonic(), _TURN_S))
        if woken:
            os.read(self._wake_fd, 4096)
        for child in speaking:
            child.hear()

    def _act_on(self, number: int) -> None:
        name = signal.Signals(number).name
        if number == signal.SIGHUP and (self._stopping or not self._on_terminal):
            self._reload_requested = True
        elif self._stopping:
            log.warning("stopping at once", signal=name)
            self._exit = ExitCode.FAILED
            for generation in self._generations():
                generation.kill_s = 0.0
        else:
            log.info("stopping", signal=name, within_s=self._current.config.drain_timeout_s)
            self._stop(signal.SIGTERM)

    def _stop(self, number: int) -> None:
        self._stopping = True
        for generation in self._generations():
            close(generation.listeners)
            if not generation.leaving:
                generation.leave(number)

    def _bury_the_dead(self) -> None:
        for generation in self._generations():
            failure = generation.bury_the_dead()
            if failure is None:
                continue
            reason, code = failure
            if generation is self._current:  # a frontend that cannot start at all ends
                log.error("cannot start", reason=reason)
                self._report("failed", reason, code)
                self._exit = ExitCode(code)
                self._stop(signal.SIGKILL)
            else:
                self._give_up(generation, reason)

    def _advance(self) -> None:
        """Forget generations that have ended, change over to the next generation once it is ready, and begin a reload."""
        for ended in [generation for generation in self._retired if not generation.children]:
            self._retired.remove(ended)
            ended.close()
        if self._stopping:
            return
        if not self._current.served and self._current.ready:
            self._current.served = True
            self._tell_listening()
        if self._next is not None and self._next.ready:
            old, self._current, self._next = self._current, self._next, None
            logs.set_level(self._current.config.log_level)
            self._current.served = True
            close(old.listeners, self._current.listeners)
            self._tell_listening()
            old.leave(signal.SIGTERM)
            self._retired.append(old)
        if self._reload_requested and self._current.served and self._next is None:
            self._reload_requested = False
            log.info("reloading", signal="SIGHUP")
            try:
                self._next = _generation(self._load(), self._current.listeners)
            except (Fault, OSError) as error:
                log.error("not reloaded, the settings of before stay", reason=str(error))

    def _give_up(self, generation: Generation, reason: str) -> None:
        """Go on with the current generation, because the next generation cannot start."""
        log.error("not reloaded, the settings of before stay", reason=reason)
        close(generation.listeners, self._current.listeners)
        generation.leave(signal.SIGKILL)
        self._next = None
        self._retired.append(generation)

    def _tell_listening(self) -> None:
        config = self._current.config
        urls = {listener.scheme: listener.url for listener in self._current.listeners.values()}
        redis, job = config.redis_settings().describe(), config.job_name
        log.info("listening", **urls, redis=redis, job=job, processes=config.workers)
        self._report.send(Event("ready", urls["http"], drain_s=self._current.config.drain_timeout_s))

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


def _generation(loaded: LoadedFrontendConfig, known: Mapping[Address, Listener]) -> Generation:
    """Return a generation with new settings and, where the address stays, with the known sockets.

    Raises:
        Fault: a file cannot be used, Redis is a cluster, or a port is taken.
    """
    config = loaded.config
    hide(*secrets_of_config(config))
    for key, why in loaded.ignored.items():
        log.info("config key ignored", key=key, why=why)
    check_files(config)
    check_redis(config.redis_settings())
    return Generation(config, listeners_of(config, known))
