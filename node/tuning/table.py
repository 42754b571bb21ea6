"""Text of a report: a table with a bar for each candidate, and a summary."""

from collections.abc import Sequence

import click

from cluster_serving.client.servers.process.table import Table
from cluster_serving.node.config.choice import Shape
from cluster_serving.node.models.runtime import Runtime, TriedRuntime
from cluster_serving.node.tuning.report import TuningReport

_BAR = 16
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BUSY = 0.9


def show(report: TuningReport) -> None:
    """Print a report."""
    if report.runtimes:
        runtimes(report.runtimes, report.choice.runtime).show()
        click.echo()
    candidates(report).show()
    click.echo(summary(report))


def runtimes(tried: Sequence[TriedRuntime], best: Runtime, word: str = "best") -> Table:
    """Return a table of the engines and precisions that were tried, with the reason of a refusal and a note below.

    The row of `best` is marked with `word`.
    """
    numbers = ("ms a batch", "largest error", "same arg max %")
    table = Table("engine", "precision", *numbers, "", numbers=numbers)
    for one in tried:
        is_best = one.runtime == best
        table.add(
            one.engine,
            one.precision,
            "-" if one.ms is None else _figure(one.ms),
            "-" if one.relative_error is None else f"{one.relative_error:.2g}",
            "-" if one.arg_max_agreement is None else f"{100 * one.arg_max_agreement:.1f}",
            "refused" if one.refused else word if is_best else "",
            style="red" if one.refused else "bold green" if is_best else None,
        )
        for text in filter(None, (one.refused, one.note)):
            table.add_below(text)
    return table


def candidates(report: TuningReport) -> Table:
    """Return a table of the candidates, cheapest first, with the reason below a refusal."""
    numbers = ("workers", "threads", "batch", "records/s")
    latencies = ("p50 ms", "p99 ms")
    table = Table(*numbers, "", *latencies, "", numbers=numbers + latencies)
    most = max((tried.middle.rate for tried in report.tried if tried.turns), default=1.0)
    for tried in report.tried:
        (workers, threads), batch = tried.candidate
        if tried.refused or not tried.turns:
            table.add(workers, threads, batch, "-", "", "-", "-", "refused", style="red")
            table.add_below(tried.refused)
        else:
            rate, p50_ms, p99_ms = map(_figure, tried.middle)
            best = tried is report.chosen
            drawn = bar(tried.middle.rate / most)
            table.add(
                *(workers, threads, batch, rate, drawn, p50_ms, p99_ms, "best" if best else ""),
                style="bold green" if best else None,
            )
    return table


def summary(report: TuningReport) -> str:
    """Return the result in a few sentences."""
    choice, chosen = report.choice, report.chosen
    shape, middle = Shape(choice.workers, choice.threads).described(), chosen.middle
    lines = [
        f"Best: {shape}, batch {choice.batch}: {_figure(middle.rate)} records/s, p99 {_figure(middle.p99_ms)} ms.",
        f"Batching {report.batching}.",
        f"Objective {report.objective}, within {report.budget}, {report.took_s:.0f} s.",
    ]
    if report.fastest is not chosen:
        lines.append(
            "Better figures are from other moments, or from costlier candidates within a tie: close candidates ran in turns."
        )
    if not report.met:
        lines.append("No candidate meets the objective: this comes nearest.")
    if report.busiest_load > _BUSY:
        lines.append("The load was busy all the time: the node may be able to do more than the load could ask for.")
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def bar(share: float) -> str:
    """Draw a bar for a share from 0 to 1."""
    whole, eighths = divmod(round(share * _BAR * 8), 8)
    return "█" * whole + _EIGHTHS[eighths].strip()
