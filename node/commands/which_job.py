"""Pick the job when the command line names none."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_serving.client.servers.process.command import say

if TYPE_CHECKING:
    from cluster_serving.node.job.directory import Job


def chosen_job(name: str | None) -> "Job":
    """Return the named job, or pick a job when there is no name.

    The pick is the job of `config.yaml` in the current directory (with the environment), else the only running job, else the
    default job.
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
            say(f"{error} (so the job name cannot be read from the configuration)", err=True)
    running = [job for job in all_jobs() if job.running()]
    return running[0] if len(running) == 1 else Job.of(DEFAULT_JOB)
