"""`start` and `restart`."""

from typing import TYPE_CHECKING, Any

import click

from cluster_serving.node.commands.guard import SETTINGS, Command, chosen_job
from cluster_serving.node.commands.options import StartOptions, start_options

if TYPE_CHECKING:
    from cluster_serving.node.jobs import NodeRecord

_TIMEOUT_S = 600.0


@click.command(cls=Command, context_settings=SETTINGS)
@start_options
@click.option(
    "--foreground", is_flag=True, help="Serve in this process, log to standard output, until SIGTERM or Ctrl-C."
)
@click.option(
    "--timeout", "timeout_s", type=float, default=_TIMEOUT_S, metavar="S", help="Seconds to wait until ready; 600."
)
@click.option("--report-fd", type=int, hidden=True)
@click.pass_context
def start(context: click.Context, /, foreground: bool, timeout_s: float, report_fd: int | None, **values: Any) -> None:
    """Start serving a model, and return when it can answer.

    Every setting can come from a flag, the environment (CLUSTER_SERVING_MODEL_PATH), or config.yaml, in this order.
    """
    options = StartOptions.of(values)
    if foreground:
        from cluster_serving.node.commands import foreground as here

        context.exit(here.run(options, report_fd))
    from cluster_serving.node.commands import background

    background.run(options, timeout_s)


@click.command(cls=Command, context_settings=SETTINGS)
@click.argument("name", required=False)
@start_options
@click.option(
    "--timeout", "timeout_s", type=float, default=_TIMEOUT_S, metavar="S", help="Seconds to wait until ready; 600."
)
def restart(name: str | None, timeout_s: float, **values: Any) -> None:
    """Stop a job and start it again.

    It starts as it was started last; options given now come on top.
    What came from the environment then, and every password, has to be given again. Redis and its data stay.
    """
    from cluster_serving.node.commands import background
    from cluster_serving.node.commands.prepare import check, check_free
    from cluster_serving.node.commands.stop import stop_job
    from cluster_serving.node.jobs import Job

    options = StartOptions.of(values)
    if name is None:
        name = options.job_name
    if name is None and options.config_path is not None:
        name = options.load()[0].config.job_name
    job = chosen_job(name)
    record = job.read()
    if record is not None:
        options = options.over(recorded_options(record))
    # What is wrong with the new start is found while the old node still serves.
    loaded, path = options.load()
    click.echo(f"Config file: {path}" if path else "Config file: none; flags and environment only.")
    new = Job.of(loaded.config.job_name)
    if new != job:
        check_free(new)
    check(loaded.config)
    stop_job(job)
    background.run(options, timeout_s)


def recorded_options(record: "NodeRecord") -> StartOptions:
    """The options that a node was started with last."""
    flags = StartOptions.of(start.make_context("start", list(record.flags)).params)
    return StartOptions(config_path=record.config_path).over(flags)
