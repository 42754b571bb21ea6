"""`stop` and `shutdown`."""

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.commands.which_job import chosen_job, job_argument
from cluster_serving.node.lifecycle.stopping import NOTHING_TO_STOP, RedisEnd, stop_job, stop_redis


@click.command(cls=Command, context_settings=SETTINGS)
@job_argument
@click.option("--all", "everything", is_flag=True, help="Stop every job of this machine.")
@click.pass_context
def stop(context: click.Context, name: str | None, everything: bool) -> None:
    """Stop a job, and keep Redis and its data.

    The node finishes the records that it has read, and leaves the rest in the queue. A frontend of start --http stops first.
    """
    from cluster_serving.node.job.directory import all_jobs
    from cluster_serving.node.lifecycle.frontend import stop_frontend

    if not everything:
        job = chosen_job(name)
        stop_frontend(job)
        context.exit(ExitCode.OK if stop_job(job) else ExitCode.NOT_RUNNING)
    running = [job for job in all_jobs() if job.running()]
    for job in running:
        stop_frontend(job)
        stop_job(job)
    if not running:
        click.echo(NOTHING_TO_STOP)
        context.exit(ExitCode.NOT_RUNNING)


@click.command(cls=Command, context_settings=SETTINGS)
@job_argument
@click.pass_context
def shutdown(context: click.Context, name: str | None) -> None:
    """Stop a job, and the Redis started for it.

    The data of Redis stays on disk for the next start. Exits with 3 when there was nothing to stop.
    """
    from cluster_serving.node.lifecycle.frontend import stop_frontend

    job = chosen_job(name)
    stop_frontend(job)
    was_running, redis = stop_job(job), stop_redis(job)
    if not was_running and redis is not RedisEnd.STOPPED:
        context.exit(ExitCode.NOT_RUNNING)
    if redis is not RedisEnd.RUNS_ON:
        click.echo("Cluster Serving is shutdown.")
