"""Launch of a detached server of this package (node or frontend) that tells its progress through a pipe."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.progress_pipe import Event, follow
from cluster_serving.node.job import detached

_END_S = 5.0


class NotReady(Fault):
    """The launched server did not get ready."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        known = exit_code in list(ExitCode)
        self.exit_code = ExitCode(exit_code) if known else ExitCode.FAILED


class Launch:
    """Server that starts in a session of its own.

    Args:
        name: name of the server in messages.
        command: absolute path of the program, and its arguments. The pipe is descriptor `detached.PASSED_FD`.
        log: file for the output.
        environ: environment of the server.
        drain_s: seconds that the server may take to stop, unless the server tells another time when it is ready.

    Raises:
        OSError: the server cannot be started.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environ: Mapping[str, str], drain_s: float
    ) -> None:
        self.name = name
        self._log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        self.drain_s = drain_s
        self._pipe, writing = os.pipe()
        try:
            self.pid = detached.spawn(command, log, environ, writing)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(writing)
        self._process = psutil.Process(self.pid)
        self.born_s = detached.born_s(self._process)
        """Time of the process's creation, in seconds since boot. With the pid it names the process, also later."""

    def wait(self, timeout_s: float, show: Callable[[Event], None]) -> str:
        """Wait until the server is ready, and return the text of its last event.

        Args:
            timeout_s: seconds to wait.
            show: called with each event of the progress, and each warning.

        Raises:
            NotReady: the server did not get ready, and has ended.
        """
        try:
            event = follow(self._pipe, timeout_s, show)
        except TimeoutError as error:
            self.stop()
            raise NotReady(f"not ready after {timeout_s:g} s, stopped; see {self._log}", ExitCode.FAILED) from error
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(self._pipe)
        if event is None or event.event != "ready":
            raise self._failure(event)
        self.drain_s = event.drain_s or self.drain_s
        return event.text

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the server runs."""
        try:
            return self._process.wait(0)
        except psutil.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Send SIGTERM: stop after the drain, or at once if told before."""
        with suppress(psutil.NoSuchProcess):
            self._process.terminate()

    def stop(self) -> None:
        """Stop the server with SIGTERM. After the time for its drain, stop the server with SIGKILL."""
        self.terminate()
        if not detached.ended(self.pid, self.drain_s + _END_S):
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # the server leads a session of its own, so its children end too
            detached.ended(self.pid, _END_S)

    def _failure(self, event: Event | None) -> NotReady:
        """Return the fault of a server that did not get ready. A server that does not end is stopped."""
        try:
            exit_code = self._process.wait(_END_S)
        except psutil.TimeoutExpired:
            self.stop()
            exit_code = None
        code = exit_code if exit_code is not None and exit_code > 0 else ExitCode.FAILED
        if event is not None:
            return NotReady(event.text, event.code or code)
        with self._log.open("rb") as stream:
            # The log may have been rotated.
            stream.seek(self._log_start if self._log.stat().st_size >= self._log_start else 0)
            lines = [line for line in stream.read()[-8192:].decode(errors="replace").splitlines() if line.strip()]
        last = f"; its log ends with: {lines[-1]}" if lines else ""
        return NotReady(f"the {self.name} ended before it was ready{last} (see {self._log})", code)


def environ_with(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this process with given variables on top, in place of the variables for files of secrets."""
    files = {f"{name}_FILE" for name in given}
    return {name: value for name, value in os.environ.items() if name not in files} | dict(given)
