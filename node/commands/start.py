"""`start` and `restart`."""

from typing import Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import Fault, NotStarted
from cluster_serving.client.servers.process.number import POSITIVE, Number
from cluster_serving.client.servers.process.quick_imports import import_lean
from cluster_serving.node.commands.plugins import check_installed
from cluster_serving.node.commands.which_job import chosen_job, job_argument
from cluster_serving.node.lifecycle.options import TIMEOUT_S, StartOptions, recorded_options, start_options


@click.command(cls=Command, context_settings=SETTINGS)
@start_options
@click.option(
    "--foreground",
    is_flag=True,
    help="Serve in this process, log to standard output, until SIGTERM or Ctrl-C; a second signal ends the node at once.",
)
@click.option(
    "--timeout", "timeout_s", type=POSITIVE, default=TIMEOUT_S, metavar="S", help="Seconds to wait until ready; 600."
)
@click.option(
    "--wait-for-redis",
    "patience_s",
    type=Number(0),
    default=0.0,
    metavar="S",
    help="With --foreground: seconds to wait for a Redis that does not answer yet; 0.",
)
@click.option("--http", "with_http", is_flag=True, help="Start a frontend for HTTP too; stop ends both.")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="With --http: port of HTTP; 10020.")
@click.option("--report-fd", type=int, hidden=True)
@click.option("--parent", type=int, hidden=True)
@click.pass_context
def start(
    context: click.Context,
    /,
    foreground: bool,
    timeout_s: float,
    patience_s: float,
    with_http: bool,
    port: int | None,
    report_fd: int | None,
    parent: int | None,
    **values: Any,
) -> None:
    """Start serving a model, and return when it can answer.

    Every setting can come from a flag, the environment (CLUSTER_SERVING_MODEL_PATH), or config.yaml, in this order.
    """
    if port is not None and not with_http:
        raise click.UsageError("--port is the port of HTTP: give --http too.")
    if with_http and foreground:
        raise click.UsageError("--foreground serves without HTTP; cluster-serving serve has both in the foreground.")
    if parent is not None:
        from cluster_serving.client.servers.process.parent import stop_with_parent

        stop_with_parent(parent)
    import_lean("structlog", "redis")
    options = StartOptions.of(values)
    if foreground:
        from cluster_serving.node.lifecycle import foreground as here

        context.exit(here.run(options, report_fd, patience_s))
    from cluster_serving.node.lifecycle import background
    from cluster_serving.node.lifecycle.frontend import Http

    if with_http:
        check_installed("frontend")
    background.run(options, timeout_s, Http(port) if with_http else None)


@click.command(cls=Command, context_settings=SETTINGS)
@job_argument
@start_options
@click.option(
    "--timeout", "timeout_s", type=POSITIVE, default=TIMEOUT_S, metavar="S", help="Seconds to wait until ready; 600."
)
@click.option(
    "--cold", is_flag=True, help="Stop first, then start: for a machine without memory for two copies of the model."
)
def restart(name: str | None, timeout_s: float, cold: bool, **values: Any) -> None:
    """Restart a job while it goes on serving.

    The new model and settings are loaded beside the old ones and take over when they can answer. When the load fails, the old
    model and settings stay. A job that does not run is started. With a new Redis or job name, or with --cold, the job is stopped
    first. The frontend of start --http moves to a new Redis or job name too.

    The job starts with the options of its last start. Options given now come on top.
    Settings that came from the environment then, and every password, have to be given again. Redis and its data stay.
    """
    import_lean("structlog", "redis")
    from cluster_serving.node.fetching.placing import fetched
    from cluster_serving.node.job.directory import Job
    from cluster_serving.node.lifecycle import background
    from cluster_serving.node.lifecycle.jobs_here import not_running
    from cluster_serving.node.lifecycle.prepare import check, check_free
    from cluster_serving.node.lifecycle.restart import can_change, frontend_to_move, request_change
    from cluster_serving.node.lifecycle.stopping import stop_job

    options, named = StartOptions.of(values), name
    if name is None:
        name = options.job_name
    if name is None and options.config_path is not None:
        name = options.load()[0].config.job_name
    job = chosen_job(name)
    record = job.read()
    if record is not None:
        options = options.over(recorded_options(record))
    # Check the new configuration while the old node still serves.
    loaded, path = options.load()
    say(f"Config file: {path}" if path else "Config file: none; flags and environment only.")
    new = Job.of(loaded.config.job_name)
    if new != job:
        if named is not None and record is None:
            raise NotStarted(f"{not_running(job)}; this configuration is of job {new.name}")
        check_free(new)
    try:
        check(loaded.config)
    except Fault:
        if job.running():
            say(f"Nothing is changed: job {job.name} goes on serving.", err=True)
        raise
    if not cold and can_change(job, record, loaded.config):
        background.say_ignored(loaded.ignored)
        complete = options if path is None else StartOptions(config_path=str(path)).over(options)
        background.say_ready(job, request_change(job, complete, timeout_s))
        return
    if loaded.config.model_is_remote:  # while the old node still serves
        fetched(loaded.config, new, say)
    stop_job(job)
    background.run(options, timeout_s, frontend_to_move(job, record, loaded.config))
