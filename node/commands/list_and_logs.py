"""`list`, `logs`, and `cluster-serving-cli` with the words of the original product."""

import json
import time
from codecs import getincrementaldecoder
from collections import deque
from contextlib import suppress
from pathlib import Path

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault, NotStarted
from cluster_serving.client.servers.process.printable import printable_lines
from cluster_serving.node.commands.which_job import chosen_job, job_argument
from cluster_serving.node.lifecycle.jobs_here import not_running, was_started
from cluster_serving.node.lifecycle.log_rotation import older_log

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
        say(f"Job name: {one['job']} | Job id: {one['node']}")
    click.echo(f"Cluster Serving jobs: {len(running)} in total")


@click.command(cls=Command, context_settings=SETTINGS)
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they come, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), default=50, metavar="N", help="Lines from the end; 50.")
def logs(name: str | None, follow: bool, lines: int) -> None:
    """Print the end of a job's log."""
    job = chosen_job(name)
    if not job.log_path.exists():
        if not was_started(job):
            raise NotStarted(not_running(job))
        raise Fault(f"job {job.name} has no log: it was never started in the background on this machine")
    older, copied = older_log(job.log_path), _written_ns(older_log(job.log_path))
    with job.log_path.open("rb") as stream:
        recent = deque(stream, maxlen=lines)
        position = stream.tell()
    if copied and len(recent) < lines:
        with older.open("rb") as stream:
            recent.extendleft(reversed(deque(stream, maxlen=lines - len(recent))))
    click.echo(printable_lines(b"".join(recent).decode(errors="replace")), nl=False)
    if follow:
        with suppress(KeyboardInterrupt):  # Ctrl-C is the way to end --follow
            _follow(job.log_path, position, copied)


def _follow(path: Path, position: int, copied: int) -> None:
    """Print what comes after `position`. `copied`: time at which the newest older log was written."""
    decode = getincrementaldecoder("utf-8")("replace").decode
    while True:
        before, copied = copied, _written_ns(older_log(path))
        rest = b""
        if copied != before:  # the log was rotated
            rest, position = _read(older_log(path), position), 0
        elif path.stat().st_size < position:  # somebody has emptied the log
            position = 0
        new = _read(path, position)
        position += len(new)
        click.echo(printable_lines(decode(rest + new)), nl=False)
        time.sleep(_POLL_S)


def _read(path: Path, position: int) -> bytes:
    with path.open("rb") as stream:
        stream.seek(position)
        return stream.read()


def _written_ns(path: Path) -> int:
    """Return the time of the last change of a file. 0: there is no file."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


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
            from cluster_serving.node.lifecycle.stopping import NOTHING_TO_STOP, stop_job

            name = words[1] if len(words) > 1 else None
            meant = [job for job in all_jobs() if job.running() and name in {None, job.name}]
            if not meant:
                click.echo(NOTHING_TO_STOP)
            for job in meant:
                if stop_job(job):
                    click.echo(f"Job with id {job.node_id()} terminated.")
        case _:
            raise Fault(f"Not supported for command: {words[0]}, please refer to document.")
