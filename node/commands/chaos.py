"""`chaos`: does the user's model survive what machines do to it?"""

import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.lifecycle.options import StartOptions, start_options


@click.command(cls=Command, context_settings=SETTINGS)
@start_options
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=60.0, metavar="S", help="Seconds of load, at least; 60."
)
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Of faults and records; unset: drawn.")
@click.option(
    "--rate", type=click.FloatRange(min=1), default=200.0, metavar="R", help="Records a second, at most; 200."
)
@click.option(
    "--samples",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Inputs to send: an .npz file with an array for each input, records first; unset: made up.",
)
@click.option("--keep", is_flag=True, help="Keep the logs, even of a run that passes.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
@click.pass_context
def chaos(
    context: click.Context,
    /,
    seconds: float,
    seed: int | None,
    rate: float,
    samples: Path | None,
    keep: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Serve the model while things die, and check every answer.

    Two nodes and a Redis of their own run this configuration. Their processes, and Redis, are killed, paused and
    restarted; records are sent that raise, crash, hang or are malformed. Then every record must have exactly one
    outcome, the right one, and nothing may be left. Nothing of yours is touched but the model, which is read; settings of
    Redis and the name of the job are not used.

    Exits with 0 when every check passes, with 1 when one fails.
    """
    from rich.console import Console

    from cluster_serving.node.chaos import report
    from cluster_serving.node.chaos.run import Options, run
    from cluster_serving.node.fetching.placing import fetched
    from cluster_serving.node.job.directory import Job
    from cluster_serving.node.lifecycle.prepare import find_model

    loaded, _ = StartOptions.of(values).load()
    loaded.config.check_model_path()
    config, _kept = fetched(loaded.config, Job.of(loaded.config.job_name), click.echo)
    find_model(config)
    options = Options(secrets.randbelow(1_000_000) if seed is None else seed, seconds, rate, samples, keep)
    console = Console(stderr=as_json)
    console.print(f"Seed {options.seed}", highlight=False)
    end = _End()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end.on_signal)
    try:
        with console.status("") if console.is_terminal else _Silent() as status:
            found = run(config, options, end.before(status.update))
    except _Told as told:
        click.echo("Interrupted; everything that was started has been ended.", err=True)
        context.exit(128 + told.number)  # as shells tell of it
    if as_json:
        click.echo(report.as_json(found))
    else:
        report.show(found, console)
    context.exit(ExitCode.OK if found.passed else ExitCode.FAILED)


class _Told(BaseException):
    """The run is to end, by the signal of this number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _End:
    """Ends the run by a signal. What a handler raises inside a finalizer is lost, so the next word of the run raises it again."""

    def __init__(self) -> None:
        self._told: _Told | None = None

    def on_signal(self, number: int, _frame: object) -> None:
        """The first one ends the run; clean-up is not cut short by a second."""
        if self._told is None:
            self._told = _Told(number)
            raise self._told

    def before(self, say: Callable[[str], None]) -> Callable[[str], None]:
        """`say`, for as long as the run goes on."""

        def say_unless_told(text: str) -> None:
            if self._told is not None:
                raise self._told
            say(text)

        return say_unless_told


class _Silent:
    """Tells nobody how it goes."""

    def __enter__(self) -> "_Silent":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, _text: str) -> None:
        """Nobody looks."""
