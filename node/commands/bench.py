"""`bench`: load a running job with the user's own records, and tell how fast, how late and what limits."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import INTERRUPTED, ExitCode, Fault
from cluster_serving.client.servers.process.number import POSITIVE, Number
from cluster_serving.node.commands.frontend_options import api_key_in, frontend_options
from cluster_serving.node.commands.job_in_redis import Where, where_options
from cluster_serving.node.commands.plot_option import check_plot, plot_option
from cluster_serving.node.commands.which_job import jobs_and_files

if TYPE_CHECKING:
    from cluster_serving.node.commands.bench_target import Aim
    from cluster_serving.node.load.measure import Measured
    from cluster_serving.node.load.result import Result


@click.command(cls=Command, context_settings=SETTINGS)
@click.argument("words", nargs=-1, metavar="[JOB] [RECORD]...", type=click.UNPROCESSED, shell_complete=jobs_and_files)
@where_options
@frontend_options
@click.option(
    "--connections",
    type=click.IntRange(1),
    metavar="N",
    help="Most requests under way. Default: over Redis as many as keep all workers busy, over HTTP 64.",
)
@click.option("--rate", type=POSITIVE, metavar="R", help="Send R requests a second by the clock, answered or not.")
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "fixed"]),
    default="poisson",
    help="With --rate: at random as of many callers (poisson), or evenly.",
)
@click.option("--seconds", type=POSITIVE, metavar="S", help="Seconds to measure. Default: until stable, at most 60.")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Begin the load anew N times; for --compare 5 or more.",
)
@click.option(
    "--deadline", "deadline_ms", type=POSITIVE, metavar="MS", help="Milliseconds after which an answer is late."
)
@click.option("--timeout", "timeout_s", type=POSITIVE, default=30.0, metavar="S", help="Seconds of a request; 30.")
@click.option(
    "--processes", type=click.IntRange(1, 256), metavar="N", help="Sending processes. Default: as many as keep up."
)
@click.option(
    "--compare",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Compare with an earlier result of --json.",
)
@click.option(
    "--tolerance",
    type=Number(0, 1),
    default=0.05,
    metavar="X",
    help="With --compare: share that is no change; 0.05.",
)
@plot_option
@click.option("--json", "as_json", is_flag=True, help="JSON: an object, described by docs/reference/bench.schema.json.")
@click.pass_context
def bench(
    context: click.Context,
    /,
    words: Sequence[str],
    where: Where,
    url: str | None,
    api_key_file: Path | None,
    connections: int | None,
    rate: float | None,
    arrivals: str,
    seconds: float | None,
    rounds: int,
    deadline_ms: float | None,
    timeout_s: float,
    processes: int | None,
    compare: Path | None,
    tolerance: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Load a running job, and show rate, latency, errors, and the part that limits.

    A RECORD is what predict takes: a file, a folder of images, JSON, or -. The records are sent again and again. Without a RECORD
    they are made up from the inputs of the model.

    Without --rate, each answer lets the next request go. With --rate, requests are sent by the clock, and latency counts from when
    a request was due. A load ends once it is stable: the medians of the last four seconds and of the four before differ by 5 % at
    most, of the rate, or with --rate of the latency. Ctrl-C ends it with the result so far.

    Exits with 1 if --compare finds a figure that is surely worse, and as predict does if no request was answered.
    """
    from rich.console import Console

    from cluster_serving.node.commands.bench_text import live_line
    from cluster_serving.node.load.measure import measure
    from cluster_serving.node.load.messages import Order
    from cluster_serving.node.load.result import Terms, read, summed_up

    before = read(compare) if compare is not None else None
    check_plot(plot)
    try:
        aim = _aim(where, url, api_key_file, words, timeout_s)
    except KeyboardInterrupt:
        say("Interrupted before the load began.", err=True)
        context.exit(INTERRUPTED)
    terms = Terms(
        job=aim.job,
        over=aim.over,
        connections=connections or (aim.connections if rate is None else aim.open_connections),
        rate=rate,
        arrivals=None if rate is None else arrivals,
        deadline_ms=deadline_ms,
        timeout_s=timeout_s,
        records=aim.records,
    )
    life_s = timeout_s if deadline_ms is None else min(timeout_s, deadline_ms / 1000)
    order = Order(aim.target, terms.connections, rate or 0.0, arrivals, 0, timeout_s, life_s)
    with Console(stderr=True).status("connecting") as status:  # on a terminal, a line with the last window
        measured = measure(order, seconds, processes, rounds, lambda window: status.update(live_line(window)))
    counted = [each for each in measured if each.counted]
    result = summed_up(counted, terms, aim.workers) if counted else None
    if result is not None:
        _show(result, before, tolerance, as_json)
        if plot is not None and result.answered:
            from cluster_serving.node.load.plot import draw

            draw(counted, terms.job, plot)
    context.exit(_exit_code(result, measured[-1]))


def _aim(where: Where, url: str | None, api_key_file: Path | None, words: Sequence[str], timeout_s: float) -> "Aim":
    """Return the target, after one record was answered."""
    from cluster_serving.node.commands.bench_target import http_aim, queue_aim
    from cluster_serving.node.commands.client_errors import as_faults
    from cluster_serving.node.commands.records_given import job_and_records

    job, records = job_and_records(where.job, words)
    with as_faults():
        if url is None:
            return queue_aim(where._replace(job=job), records, timeout_s)
        return http_aim(url, api_key_in(api_key_file), job, records, timeout_s)


def _show(result: "Result", before: "Result | None", tolerance: float, as_json: bool) -> None:
    import msgspec

    from cluster_serving.client.servers.process.table import output_width
    from cluster_serving.node.commands.bench_text import page
    from cluster_serving.node.load.result import beside

    if before is not None:
        result.comparison = beside(before, result, tolerance)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
    else:
        click.echo("\n".join(page(result, before, output_width())))


def _exit_code(result: "Result | None", last: "Measured") -> int:
    """Return the exit code of a load with its last round.

    Raises:
        Fault: an error ended the load.
    """
    from cluster_serving.node.commands.predict_answers import exit_code_of
    from cluster_serving.node.job.redis_errors import RedisUnavailable

    if last.error is not None:
        kind = RedisUnavailable if last.error.is_lost else Fault
        raise kind(f"the load ended: {last.error.error}")
    if result is None:
        say("Interrupted before the first second was measured.", err=True)
    if result is None or last.is_interrupted:
        return INTERRUPTED
    if not result.answered:
        return exit_code_of(result.failed[0].code) if result.failed else ExitCode.TIMED_OUT
    return ExitCode.FAILED if any(each.verdict == "worse" for each in result.comparison or ()) else ExitCode.OK
