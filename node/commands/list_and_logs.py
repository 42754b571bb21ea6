"""`list`, `logs`, and `cluster-serving-cli` with the words of the original product."""

import json
import time
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault, NotStarted
from cluster_serving.client.servers.process.printable import printable_lines
from cluster_serving.node.commands.log_lines import LEVELS, LogFilter, as_json, parse_since
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
    click.echo(f"Cluster Serving jobs {len(running)} totally")


def _since(_context: click.Context, _option: click.Parameter, text: str | None) -> datetime | None:
    try:
        return parse_since(text, datetime.now(UTC)) if text else None
    except (ValueError, OverflowError):
        raise click.BadParameter("is neither a time back (90s, 10m, 2h, 7d) nor a time like 2026-11-25T07:30") from None


@click.command(cls=Command, context_settings=SETTINGS)
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they come, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), metavar="N", help="Lines from the end; 50, or all with --since.")
@click.option("--since", callback=_since, metavar="TIME", help="Lines since 10m, 2h or 7d ago, or since a time.")
@click.option("--level", type=click.Choice(LEVELS), default=LEVELS[0], help="Lowest level.")
@click.option("--process", default="", metavar="NAME", help="Lines of one process: reader, worker-0, worker (all).")
@click.option("--json", "in_json", is_flag=True, help="JSON: an object a line.")
def logs(
    name: str | None, follow: bool, lines: int | None, since: datetime | None, level: str, process: str, in_json: bool
) -> None:
    """Print the end of a job's log."""
    job = chosen_job(name)
    if not job.log_path.exists():
        if not was_started(job):
            raise NotStarted(f"{not_running(job)}.")
        raise Fault(
            f"job {job.name} has no log here: a node in the foreground logs to its standard error, in a container to `docker logs`"
        )
    wanted = LogFilter(since, level, process)
    show = as_json if in_json else printable_lines
    most = lines if lines is not None else None if since else 50
    copied = _written_ns(older_log(job.log_path))
    recent, position = _recent(job.log_path, wanted, most)
    if not wanted.has_process:
        processes = ", ".join(sorted(wanted.seen))
        missing = f"the log of job {job.name} has no line of process {process}; it has lines of {processes}"
        say(f"{missing}; new ones are waited for" if follow else missing, err=True)
    for line in recent:
        click.echo(show(line), nl=False)
    if follow:
        with suppress(KeyboardInterrupt):  # Ctrl-C is the way to end --follow
            _follow(job.log_path, position, copied, wanted, show)


def _recent(path: Path, wanted: LogFilter, most: int | None) -> tuple[deque[str], int]:
    """Return the newest wanted lines, at most `most`, and the position behind the last line of the newest log."""
    found, position = deque[str](), 0
    for number in count():
        log = older_log(path, number) if number else path
        if not log.exists() or (wanted.since and _written_ns(log) < 1e9 * wanted.since.timestamp()):
            break
        with log.open("rb") as stream:
            texts = (line.decode(errors="replace") for line in stream)
            room = None if most is None else most - len(found)
            part = deque((text for text in texts if wanted.takes(text)), maxlen=room)
            position = position if number else stream.tell()
        found.extendleft(reversed(part))
        if len(found) == most:
            break
    return found, position


def _follow(path: Path, position: int, copied: int, wanted: LogFilter, show: Callable[[str], str]) -> None:
    """Print the wanted lines after `position`. `copied`: time at which the newest older log was written."""
    decode = getincrementaldecoder("utf-8")("replace").decode
    begun = ""
    while True:
        before, copied = copied, _written_ns(older_log(path))
        rest = b""
        if copied != before:  # the log was rotated
            rest, position = _read(older_log(path), position), 0
        elif path.stat().st_size < position:  # somebody has emptied the log
            position = 0
        new = _read(path, position)
        position += len(new)
        *whole, begun = (begun + decode(rest + new)).split("\n")
        for line in whole:
            if wanted.takes(line):
                click.echo(show(f"{line}\n"), nl=False)
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
