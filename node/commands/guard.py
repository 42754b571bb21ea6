"""What every command has in common: faults end it with one sentence and an exit code; `-h` works; which job is meant."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cluster_serving.node.exit_codes import NodeFault

if TYPE_CHECKING:
    from cluster_serving.node.jobs import Job

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Command(click.Command):
    """A command that ends with a sentence on standard error, and an exit code, for every fault which a person can mend."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except NodeFault as fault:
            click.echo(str(fault), err=True)
            ctx.exit(fault.exit_code)
        except OSError as error:
            if error.filename is None:
                raise
            click.echo(f"{error.filename}: {error.strerror}", err=True)
            ctx.exit(NodeFault.exit_code)


def chosen_job(name: str | None) -> "Job":
    """The job that a command without a name means.

    That of `config.yaml` here (with the environment), else the only one that runs, else the default job.
    """
    from cluster_serving.client.keys import DEFAULT_JOB
    from cluster_serving.node.config import ConfigError, load_config
    from cluster_serving.node.jobs import Job, all_jobs

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
