"""`start` without `--foreground`: start a node that outlives the command, and wait until the node can serve."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from cluster_serving.client.servers.process.command import say
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.printable import printable
from cluster_serving.node.job import detached
from cluster_serving.node.job.directory import Job
from cluster_serving.node.lifecycle.jobs_here import command_for
from cluster_serving.node.lifecycle.options import StartOptions
from cluster_serving.node.lifecycle.prepare import prepare, repair_redis
from cluster_serving.node.lifecycle.progress_pipe import Event, follow
from cluster_serving.node.lifecycle.stopping import stop_redis

if TYPE_CHECKING:
    from rich.status import Status
    from rich.text import Text

_END_S = 5.0


class NotReady(Fault):
    """The started node did not get ready."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        known = exit_code in list(ExitCode)
        self.exit_code = ExitCode(exit_code) if known else ExitCode.FAILED


def run(options: StartOptions, timeout_s: float) -> None:
    """Start a node, and wait until the node is ready.

    Raises:
        Fault: the config, the model or Redis is at fault.
        NotReady: the node did not get ready, and has been stopped.
    """
    loaded, _ = options.load()
    say_ignored(loaded.ignored)
    job = Job.of(loaded.config.job_name)
    if job.running() and repair_redis(loaded.config.redis_settings(), say):
        say(f"Cluster Serving job {job.name} runs, and goes on with this Redis.")
        return
    say("Starting new Cluster Serving job.")
    started_redis = prepare(loaded.config, job, say)
    try:
        text = _start_node(options, job, timeout_s, loaded.config.drain_timeout_s + _END_S)
    except BaseException:
        if started_redis:
            stop_redis(job)
        raise
    say_ready(job, text)


def say_ready(job: Job, text: str) -> None:
    """Say that a node serves, and show the path of its log and the command to stop the node."""
    say(f"Cluster Serving job {job.name} is ready: {text}")
    say(f"Log: {job.log_path}")
    say(f"Stop it with: {command_for(job, 'stop')}")


def say_ignored(ignored: Mapping[str, str]) -> None:
    """Print the obsolete keys of a config in one line, the keys with the same reason together."""
    reasons = dict.fromkeys(ignored.values())
    parts = [f"{', '.join(key for key in ignored if ignored[key] == why)} ({why})" for why in reasons]
    if parts:
        say(f"Ignored: {'; '.join(parts)}.", err=True)


def _start_node(options: StartOptions, job: Job, timeout_s: float, stop_timeout_s: float) -> str:
    """Start the node, wait until the node is ready, and return the text of the node."""
    log_start = job.log_path.stat().st_size if job.log_path.exists() else 0
    public, secrets = options.without_secrets()
    reading, writing = os.pipe()
    try:
        pid = detached.spawn(_command(public), job.log_path, environ_with(secrets), writing)
        os.close(writing)
        try:
            with StartDisplay() as display:
                event = follow(reading, timeout_s, display.show)
        except (KeyboardInterrupt, TimeoutError) as error:
            _stop(pid, stop_timeout_s)
            if isinstance(error, KeyboardInterrupt):
                raise
            raise NotReady(f"not ready after {timeout_s:g} s, stopped; see {job.log_path}", ExitCode.FAILED) from error
    finally:
        os.close(reading)
        with suppress(OSError):  # closed already, unless the node could not be started
            os.close(writing)
    if event is None or event.event != "ready":
        raise _failure(event, pid, job.log_path, log_start)
    return event.text


def environ_with(secrets: dict[str, str]) -> dict[str, str]:
    """Return the environment of a node: the variables of this process, with secrets in place of the variables for their files."""
    files = {f"{name}_FILE" for name in secrets}
    return {name: value for name, value in os.environ.items() if name not in files} | secrets


def _command(options: StartOptions) -> list[str]:
    path = [f"--config-path={options.config_path}"] if options.config_path else []
    # -P: a file `click.py` in the working directory must not become part of the server.
    node = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "start", "--foreground"]
    return [*node, f"--report-fd={detached.PASSED_FD}", *path, *options.argv()]


def _stop(pid: int, timeout_s: float) -> None:
    """Stop the node with SIGTERM. After `timeout_s`, stop the node with SIGKILL."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        if not detached.ended(pid, timeout_s):
            os.killpg(pid, signal.SIGKILL)  # the node leads a session of its own, so its children end too
            detached.ended(pid, _END_S)


def _failure(event: Event | None, pid: int, log: Path, log_start: int) -> NotReady:
    """Return the fault of a node that did not get ready. A node that does not end is stopped."""
    try:
        exit_code: int | None = psutil.Process(pid).wait(_END_S)
    except psutil.NoSuchProcess:
        exit_code = None
    except psutil.TimeoutExpired:
        _stop(pid, _END_S)
        exit_code = None
    code = exit_code if exit_code is not None and exit_code > 0 else ExitCode.FAILED
    if event is not None:
        return NotReady(event.text, event.code or code)
    with log.open("rb") as stream:
        stream.seek(log_start if log.stat().st_size >= log_start else 0)  # the log may have been rotated
        lines = [line for line in stream.read()[-8192:].decode(errors="replace").splitlines() if line.strip()]
    last = f"; its log ends with: {lines[-1]}" if lines else ""
    return NotReady(f"the node ended before it was ready{last} (see {log})", code)


class StartDisplay:
    """Display of the progress: on a terminal a single line that changes, elsewhere a line per step. Warnings stay."""

    def __init__(self) -> None:
        self._status: Status | None = None
        self._started = time.monotonic()

    def __enter__(self) -> "StartDisplay":
        if sys.stdout.isatty():
            from rich.console import Console

            self._status = Console().status(_ProgressStep("starting", self._started))
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, event: Event) -> None:
        """Show a step or a warning."""
        is_warning = event.event == "warning"
        text = f"Warning: {event.text}" if is_warning else event.text
        if self._status is None:
            say(text, err=is_warning)
        elif is_warning:
            from rich.text import Text

            self._status.console.print(Text(printable(text)))
        else:
            self._status.update(_ProgressStep(text, self._started))


@dataclass(frozen=True)
class _ProgressStep:
    """Step with the seconds since the start, counted each time that rich draws the step."""

    text: str
    started: float

    def __rich__(self) -> "Text":
        from rich.text import Text

        return Text(f"{printable(self.text)} ({time.monotonic() - self.started:.0f} s)")
