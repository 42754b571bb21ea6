"""`serve`: one model in the foreground over HTTP and Redis, with calls to paste and a live line."""

import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import INTERRUPTED, ExitCode, Fault
from cluster_serving.client.servers.process.number import POSITIVE
from cluster_serving.client.servers.process.printable import printable, printable_lines
from cluster_serving.client.servers.process.quick_imports import import_lean
from cluster_serving.node.commands.plugins import check_installed
from cluster_serving.node.lifecycle.options import TIMEOUT_S, StartOptions, serve_options

if TYPE_CHECKING:
    from rich.live import Live

    from cluster_serving.client.wire.heartbeat import Heartbeat
    from cluster_serving.node.config.loading import Config
    from cluster_serving.node.job.directory import Job

_LOOK_S = 0.5
_TELL_S = 10.0
_KNOWN_S = 10.0
_REDIS_S = 5.0
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")  # of Docker, and of Podman


@click.command(cls=Command, context_settings=SETTINGS)
@serve_options
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="Port of HTTP; 10020. 0: any free port.")
@click.option("--reload", is_flag=True, help="Load a model in Python again when a .py file of its folder changes.")
@click.option(
    "--timeout", "timeout_s", type=POSITIVE, default=TIMEOUT_S, metavar="S", help="Seconds to wait until ready; 600."
)
@click.pass_context
def serve(context: click.Context, /, port: int | None, reload: bool, timeout_s: float, **values: Any) -> None:
    """Serve MODEL, a file, a folder or a URL, over HTTP and Redis, until Ctrl-C.

    Shows calls of the model to paste. A Redis that does not run yet is started, and stopped at the end; its data stays on disk.
    Every setting of start can be given, in the same ways.
    """
    check_installed("frontend")
    import_lean("structlog", "redis")
    from cluster_serving.node.job.directory import Job
    from cluster_serving.node.lifecycle.background import say_ignored
    from cluster_serving.node.lifecycle.frontend import Http
    from cluster_serving.node.lifecycle.together import serving

    options = StartOptions.of(values)
    loaded, path = options.load()
    config = loaded.config
    if path is not None:
        say(f"Config file: {path}")
        options = StartOptions(config_path=str(path)).over(options)
    say_ignored(loaded.ignored)
    job = Job.of(config.job_name)
    read_sources = _sources(config) if reload else dict[Path, int]
    is_ready = False
    try:
        with serving(options, loaded, path, job, timeout_s, Http(port)) as started, _Beats(config, job) as beats:
            url = started.local_url
            _show_calls(config, job, beats.first(url), url)
            _show_reach(job, url, is_public=url != started.url)
            is_ready = True
            sources = read_sources()
            with _Display() as display:
                while True:
                    display.show(beats.line())
                    for server, log in ((started.node, job.log_path), (started.frontend, job.frontend_log_path)):
                        if server is not None and (code := server.exit_code()) is not None:
                            say(f"The {server.name} has ended with exit code {code}; see {log}", err=code != 0)
                            context.exit(code if code in list(ExitCode) else ExitCode.FAILED)
                    if (changed := read_sources()) != sources:
                        sources = changed
                        with display.paused():
                            _reload(job, options, timeout_s)
                    time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        if not is_ready:
            say("Stopped before the model was ready; nothing is left running.", err=True)
            context.exit(INTERRUPTED)
        say("Stopped.")


def _sources(config: "Config") -> Callable[[], dict[Path, int]]:
    """Return a function that reads the times at which the sources of a model in Python were changed.

    Raises:
        UsageError: the model is not in Python.
    """
    from cluster_serving.node.lifecycle.prepare import find_model

    model = None if config.model_is_remote else find_model(config)
    if model is None or model.format != "python":
        raise click.UsageError(f"--reload is for a model in Python (.py), and {config.model_path} is none.")
    folder = model.definition.parent

    def read() -> dict[Path, int]:
        times: dict[Path, int] = {}
        for path in folder.glob("*.py"):
            with suppress(FileNotFoundError):  # an editor replaces the file at this moment
                times[path] = path.stat().st_mtime_ns
        return times

    return read


def _reload(job: "Job", options: StartOptions, timeout_s: float) -> None:
    from cluster_serving.node.lifecycle.restart import request_change

    try:
        say(f"Reloaded: {request_change(job, options, timeout_s)}")
    except Fault as fault:
        say(f"Not reloaded: {fault}", err=True)


class _Beats:
    """Heartbeats of the node of a job, read from Redis."""

    def __init__(self, config: "Config", job: "Job") -> None:
        from cluster_serving.client.keys import node_key

        self._key = node_key(job.name, job.node_id())
        self._job = job
        self._settings = config.redis_settings(_REDIS_S)
        self._client = self._settings.client()

    def __enter__(self) -> "_Beats":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def first(self, url: str) -> "Heartbeat":
        """Return the heartbeat of the ready node, once the frontend at `url` knows the node too.

        Raises:
            Fault: the node has no heartbeat, or the frontend does not find the node.
        """
        from cluster_serving.node.lifecycle.frontend import await_model

        if await_model(url, self._job.name, _KNOWN_S) and (beat := self._read()) is not None:
            return beat
        raise Fault(f"the frontend at {url} does not find the node; see {self._job.frontend_log_path}")

    def line(self) -> str:
        """Return the live line."""
        from redis import RedisError

        try:
            beat = self._read()
        except (RedisError, OSError) as error:
            return f"Redis at {self._settings.describe()} does not answer: {error}"
        if beat is None:
            return "the node has no heartbeat"
        if beat.state != "ready":
            return f"the node is {beat.state}"
        from cluster_serving.node.commands.load_text import live_line

        return live_line(beat)

    def _read(self) -> "Heartbeat | None":
        from cluster_serving.client.wire.heartbeat import Heartbeat

        text: Any = self._client.get(self._key)
        return Heartbeat.decode(text) if text else None


class _Display:
    """Place of the live line: on a terminal a line that changes, elsewhere a line now and then, if there is news."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._told, self._told_s = "", -inf

    def __enter__(self) -> "_Display":
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Leave the terminal to other output for a block."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def show(self, text: str) -> None:
        """Show the line."""
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(printable(text), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif text != self._told and time.monotonic() - self._told_s >= _TELL_S:
            say(text)
            self._told, self._told_s = text, time.monotonic()


def _status(url: str) -> int:
    """Return the HTTP status that the frontend answers with."""
    try:
        with urllib.request.urlopen(url, timeout=_KNOWN_S) as response:  # noqa: S310 - an own URL
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def _wants_key(url: str, job: str) -> bool:
    """Return whether the frontend at `url` answers callers with an API key alone."""
    return _status(f"{url}/v2/models/{quote(job, safe='')}") == HTTPStatus.UNAUTHORIZED


def _show_calls(config: "Config", job: "Job", beat: "Heartbeat", url: str) -> None:
    """Print the model's inputs and outputs, and calls to paste."""
    from cluster_serving.client.servers.process.table import Table
    from cluster_serving.client.tensor_spec import TensorSpec
    from cluster_serving.node.commands import calls

    many = f"{beat.workers} worker{'s' * (beat.workers != 1)} of {beat.threads} thread{'s' * (beat.threads != 1)}"
    click.echo()
    say(f"Serving {Path(beat.model).name} ({beat.backend}, {many}) at {url}")
    click.echo()
    table = Table("", "", "")
    inputs = beat.inputs or (TensorSpec("x", "float32", None),)
    for kind, specs in (("input", inputs), ("output", beat.outputs)):
        for spec in specs:
            table.add(kind, spec.name, spec.kind)
    table.show()
    guessed = [spec.name for spec in inputs if spec.shape is None]
    if guessed:
        click.echo()
        say("The model does not tell its shapes, and the call below is a guess. To tell them:")
        say(f"  --set 'modelInputs={guessed[0]} float32 [N,3,224,224]'")
    values = [(spec.name, value) for spec in inputs if (value := calls.example(spec)) is not None]
    click.echo()
    if beat.raw or len(values) < len(inputs):
        why = "preprocess takes records of its own" if beat.raw else "an input takes maps"
        say(f"No call is shown, because {why}. The address: {url}/v1/models/{job.name}:predict")
    else:
        keyed = _wants_key(url, job.name)
        if keyed:
            say("The frontend wants one of its API keys: put it into API_KEY.")
            click.echo()
        click.echo(printable_lines(calls.curl(url, job.name, values, whole=beat.already_batched, keyed=keyed)))
        click.echo()
        click.echo(printable_lines(calls.python(config.redis_settings(), job.name, values)))
    click.echo()
    say(f"More calls: {url}/docs")
    if _status(f"{url}/dashboard") == HTTPStatus.OK:
        say(f"Dashboard: {url}/dashboard")
    say(f"Logs: {job.log_path} and {job.frontend_log_path.name}")


def _show_reach(job: "Job", url: str, *, is_public: bool) -> None:
    """Print from where the model can be called, where that may be a surprise."""
    if is_public and not _wants_key(url, job.name):
        say("Every machine that reaches the port may call: apiKeysFile asks for keys.")
    if any(Path(mark).exists() for mark in _CONTAINER_MARKS):
        say("The Python program runs in this container, or with docker run --net=host.")
    say("Ctrl-C ends everything.")
    click.echo()
