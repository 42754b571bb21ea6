"""Which job a command means that is not told."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cluster_serving.node.job.directory import Job


def chosen_job(name: str | None) -> "Job":
    """The job that a command without a name means.

    That of `config.yaml` here (with the environment), else the only one that runs, else the default job.
    """
    from cluster_serving.client.keys import DEFAULT_JOB
    from cluster_serving.node.config.loading import ConfigError, load_config
    from cluster_serving.node.job.directory import Job, all_jobs

    if name is not None:
        return Job.of(name)
    here = Path("config.yaml")
    if here.exists() or os.environ.get("CLUSTER_SERVING_JOB_NAME"):
        try:
            return Job.of(load_config(here if here.exists() else None, os.environ, {}).config.job_name)
        except ConfigError as error:
            click.echo(f"{error} (which job is meant cannot be read from it)", err=True)
    running = [job for job in all_jobs() if job.running()]
    return running[0] if len(running) == 1 else Job.of(DEFAULT_JOB)
