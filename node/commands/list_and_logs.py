"""`list`, `logs`, and `cluster-serving-cli` with the words of the original product."""

import json
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.printable import printable
from cluster_serving.node.commands.which_job import chosen_job

if TYPE_CHECKING:
    from pathlib import Path

_POLL_S = 0.3


@click.command("list", cls=Command, context_settings=SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="JSON: an array with the job and the node of each running job.")
def list_(as_json: bool) -> None:
    """List the running jobs of this machine."""
    _print_list(as_json)


def _print_list(as_json: bool = False) -> None:
    from cluster_serving.node.job.directory import all_jobs

    running = [{"job": job.name, "node": job.node_id()} for job in all_jobs() if job.running()]
    if as_json:
        click.echo(json.dumps(running, indent=2))
        return
    click.echo("Listing running Cluster Serving jobs:")
    for one in running:
        click.echo(f"Job name: {printable(one['job'])} | Job id: {one['node']}")
    click.echo(f"Cluster Serving jobs {len(running)} totally")


@click.command(cls=Command, context_settings=SETTINGS)
@click.argument("name", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they come, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), default=50, metavar="N", help="Lines from the end; 50.")
def logs(name: str | None, follow: bool, lines: int) -> None:
    """Print the end of a job's log."""
    job = chosen_job(name)
    if not job.log_path.exists():
        raise Fault(f"job {job.name} has no log: it was never started in the background on this machine")
    with job.log_path.open(encoding="utf-8", errors="replace") as stream:
        for line in deque(stream, maxlen=lines):
            click.echo(line, nl=False)
        if follow:
            with suppress(KeyboardInterrupt):  # Ctrl-C is the way to end --follow
                _follow(job.log_path, stream.tell())


def _follow(path: "Path", position: int) -> None:
    while True:
        with path.open("rb") as stream:
            if path.stat().st_size < position:
                position = 0  # the log was truncated
            stream.seek(position)
            new = stream.read()
        position += len(new)
        click.echo(new, nl=False)
        time.sleep(_POLL_S)


@click.command(cls=Command, context_settings=SETTINGS, epilog="Commands: list, stop [NAME].")
@click.argument("words", nargs=-1, metavar="COMMAND [NAME]")
@click.pass_context
def cli_of_the_original(context: click.Context, words: tuple[str, ...]) -> None:
    """List the running jobs, stop one job, or stop all jobs."""
    match words:
        case ():
            click.echo(context.get_usage(), err=True)
            context.exit(ExitCode.FAILED)
        case ("list",):
            _print_list()
        case ("stop",) | ("stop", _):
            from cluster_serving.node.job.directory import all_jobs
            from cluster_serving.node.lifecycle.stopping import stop_job

            name = words[1] if len(words) > 1 else None
            meant = [job for job in all_jobs() if job.running() and name in {None, job.name}]
            if not meant:
                click.echo("Serving is not running, stop operation ignored.")
            for job in meant:
                if stop_job(job):
                    click.echo(f"Job with id {job.node_id()} terminated.")
        case _:
            raise Fault(f"Not supported for command: {words[0]}, please refer to document.")
