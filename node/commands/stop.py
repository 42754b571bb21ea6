"""`stop` and `shutdown`."""

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.node.commands.which_job import chosen_job
from cluster_serving.node.lifecycle.stopping import stop_job, stop_redis


@click.command(cls=Command, context_settings=SETTINGS)
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Stop every job of this machine.")
def stop(name: str | None, everything: bool) -> None:
    """Stop a job, and keep Redis and its data.

    The node finishes the records that it has read, and leaves the rest in the queue.
    """
    from cluster_serving.node.job.directory import all_jobs

    if not everything:
        stop_job(chosen_job(name))
        return
    running = [job for job in all_jobs() if job.running()]
    if not running:
        click.echo("Serving is not running, stop operation ignored.")
    for job in running:
        stop_job(job)


@click.command(cls=Command, context_settings=SETTINGS)
@click.argument("name", required=False)
def shutdown(name: str | None) -> None:
    """Stop a job, and the Redis started for it.

    The data of Redis stays on disk for the next start.
    """
    job = chosen_job(name)
    stop_job(job)
    if stop_redis(job):
        click.echo("Cluster Serving is shutdown.")
