"""`chaos`: serve the user's model while processes are killed, and check every answer."""

import secrets
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.servers.process.number import Number
from cluster_serving.node.lifecycle.options import StartOptions, start_options


@click.command(cls=Command, context_settings=SETTINGS)
@start_options
@click.option("--seconds", type=Number(1), default=60.0, metavar="S", help="Seconds of load, at least; 60.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of faults and records; unset: random.")
@click.option("--rate", type=Number(1), default=200.0, metavar="R", help="Records a second, at most; 200.")
@click.option(
    "--samples",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Inputs to send: an .npz file with an array for each input, records first; unset: made up.",
)
@click.option("--keep", is_flag=True, help="Keep the logs, even of a run that passes.")
@click.option(
    "--json", "as_json", is_flag=True, help="JSON: an object with seed, passed, figures, checks, callers and notes."
)
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
    """Serve the model while processes die, and check every answer.

    Two nodes with a private Redis run this configuration. Node processes and Redis are killed, paused and restarted, Redis fails
    over, and clocks are set. Among the records are records that raise, crash, hang or are malformed. Beside the load, six callers
    use the queues as programs do: one shares them between threads, one forks, one pauses, one leaves loops early, one is
    interrupted by signals, one cancels its tasks. Every answer is compared with the model's own. At the end every record must have
    exactly one outcome, the right outcome, and nothing of the run may be left. The command reads your model and touches no other
    data of yours. Settings of Redis and the name of the job are not used.

    In the table of the callers, "stopped" counts rounds that the caller itself did not end, and "refused for" rounds that ended
    with an error that a fault may cause.

    Exits with 0 when every check passes, with 1 when a check fails.
    """
    from rich.console import Console

    from cluster_serving.client.servers.process.signals import Signals
    from cluster_serving.node.chaos import report
    from cluster_serving.node.chaos.run import Options, run
    from cluster_serving.node.fetching.placing import fetched
    from cluster_serving.node.job.directory import Job
    from cluster_serving.node.lifecycle.prepare import find_model

    loaded, _ = StartOptions.of(values).load()
    loaded.config.check_model_path()
    config, _kept = fetched(loaded.config, Job.of(loaded.config.job_name), partial(say, err=as_json))
    find_model(config)
    options = Options(secrets.randbelow(1_000_000) if seed is None else seed, seconds, rate, samples, keep)
    click.echo(f"Seed {options.seed}", err=as_json)
    signals = Signals()
    console = Console(stderr=as_json)
    status = console.status("")

    def tell(text: str) -> None:
        signals.check()  # Python drops an exception that a handler raises inside a finalizer
        status.update(text)

    interrupted = "Interrupted; everything that was started has been ended."
    with signals.heard(interrupted), status if console.is_terminal else nullcontext():
        found = run(config, options, tell)
    if as_json:
        click.echo(report.as_json(found))
    else:
        report.show(found)
    context.exit(ExitCode.OK if found.passed else ExitCode.FAILED)
