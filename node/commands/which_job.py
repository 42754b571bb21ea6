"""Argument of a command that names a job, and the job when the command line names none."""

import os
import shlex
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from cluster_serving.client.servers.config.file_here import file_here

if TYPE_CHECKING:
    from cluster_serving.node.job.directory import Job


def is_plain(word: str) -> bool:
    """Return whether a shell takes a word as it stands. Only such words may be offered, because clients choose uris."""
    return word == shlex.quote(word)


def job_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the jobs of this machine, for the shell to offer. For `stop`, only the running jobs."""
    from cluster_serving.node.job.directory import all_jobs

    del parameter
    jobs = [job for job in all_jobs() if context.info_name != "stop" or job.running()]
    return [job.name for job in jobs if job.name.startswith(incomplete) and is_plain(job.name)]


def jobs_and_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the jobs of this machine, and let the shell offer files beside them."""
    # The files stand first, because bash forgets the words before them.
    jobs = job_names(context, parameter, incomplete)
    return [CompletionItem(incomplete, type="file"), *map(CompletionItem, jobs)]


job_argument = click.argument("name", required=False, shell_complete=job_names)


def chosen_job(name: str | None) -> "Job":
    """Return the named job, or pick a job when there is no name.

    The pick is the job of `config.yaml` in the current directory (with the environment), else the only running job, else the
    default job.

    Raises:
        ConfigError: `config.yaml` or the environment is wrong, so that it does not tell its job.
    """
    from cluster_serving.client.keys import DEFAULT_JOB
    from cluster_serving.node.config.loading import load_config
    from cluster_serving.node.job.directory import Job, all_jobs

    if name is not None:
        return Job.of(name)
    path = file_here()
    if path or os.environ.get("CLUSTER_SERVING_JOB_NAME"):
        return Job.of(load_config(path, os.environ, {}).config.job_name)
    running = [job for job in all_jobs() if job.running()]
    return running[0] if len(running) == 1 else Job.of(DEFAULT_JOB)
