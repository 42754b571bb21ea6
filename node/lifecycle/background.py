"""`start` without `--foreground`: start a node that outlives the command, and wait until the node can serve."""

import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_serving.client.servers.process.command import say
from cluster_serving.client.servers.process.printable import printable
from cluster_serving.client.servers.process.progress_pipe import Event
from cluster_serving.node.job import detached
from cluster_serving.node.job.directory import Job
from cluster_serving.node.lifecycle.frontend import Http, await_model, launch_frontend, record_frontend, stop_frontend
from cluster_serving.node.lifecycle.jobs_here import command_for
from cluster_serving.node.lifecycle.launch import Launch, environ_with
from cluster_serving.node.lifecycle.options import StartOptions
from cluster_serving.node.lifecycle.prepare import prepare, repair_redis
from cluster_serving.node.lifecycle.stopping import stop_redis

if TYPE_CHECKING:
    from rich.status import Status
    from rich.text import Text

    from cluster_serving.node.config.loading import LoadedConfig


_KNOWN_S = 3.0  # not for ever: servables-conf.yaml may give the job another name


@dataclass(frozen=True)
class Started:
    """Servers of a job that are ready. `text` describes the node. `url`: address that the frontend listens on, if there is one."""

    node: Launch
    text: str
    frontend: Launch | None = None
    url: str = ""

    @property
    def local_url(self) -> str:
        """Address of the frontend for programs of this machine."""
        return re.sub(r"//(0\.0\.0\.0|\[::\]):", "//localhost:", self.url)

    def stop(self) -> None:
        """Stop the frontend, so that no more requests come, and then the node."""
        for server in filter(None, (self.frontend, self.node)):
            server.stop()


def run(options: StartOptions, timeout_s: float, http: Http | None = None) -> None:
    """Start a node, and wait until the node is ready.

    Args:
        options: options of `start`.
        timeout_s: seconds to wait.
        http: wish for a frontend beside the node. None: no frontend.

    Raises:
        Fault: the config, the model or Redis is at fault.
        NotReady: node or frontend did not get ready, and both have been stopped.
    """
    loaded, path = options.load()
    say_ignored(loaded.ignored)
    job = Job.of(loaded.config.job_name)
    if job.running() and repair_redis(loaded.config.redis_settings(), say):
        say(f"Cluster Serving job {job.name} runs, and goes on with this Redis.")
        return
    say("Starting new Cluster Serving job.")
    started_redis = prepare(loaded.config, job, say)
    try:
        started = start_servers(options, loaded, path, job, timeout_s, http)
    except BaseException:
        if started_redis:
            stop_redis(job)
        raise
    say_ready(job, started.text)
    if started.url:
        say(f"HTTP: {started.local_url}")
        say(f"Dashboard: {started.local_url}/dashboard")


def start_servers(
    options: StartOptions,
    loaded: "LoadedConfig",
    path: Path | None,
    job: Job,
    timeout_s: float,
    http: Http | None,
    extra: Sequence[str] = (),
) -> Started:
    """Start a node, and perhaps a frontend beside it, and wait until both are ready. Redis is there.

    Args:
        options: options of `start`.
        loaded: config of the node.
        path: config file of the node.
        job: job of the node.
        timeout_s: seconds to wait for each.
        http: wish for a frontend. None: no frontend.
        extra: further arguments of both.

    Raises:
        NotReady: node or frontend did not get ready, and both have been stopped.
    """
    public, secrets = options.without_secrets()
    with ExitStack() as undo:
        drain_s = loaded.config.drain_timeout_s
        node = Launch("node", [*_command(public), *extra], job.log_path, environ_with(secrets), drain_s)
        undo.callback(node.stop)
        frontend, url = None, ""
        if http is not None:
            stop_frontend(job)  # left by a node that has died
            frontend = launch_frontend(http, loaded, path, job, extra)
            undo.callback(frontend.stop)
        with StartDisplay() as display:
            if frontend is not None and http is not None:  # ready first, as a rule
                url = frontend.wait(timeout_s, display.show)
                record_frontend(http, frontend, job)
            text = node.wait(timeout_s, display.show)
            undo.pop_all()
            started = Started(node, text, frontend, url)
            if frontend is not None:
                await_model(started.local_url, job.name, _KNOWN_S)
    return started


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


def _command(options: StartOptions) -> list[str]:
    path = [f"--config-path={options.config_path}"] if options.config_path else []
    # -P: a file `click.py` in the working directory must not become part of the server.
    node = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "start", "--foreground"]
    return [*node, f"--report-fd={detached.PASSED_FD}", *path, *options.argv()]


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
