"""Text of a report: a table with a bar for each candidate, and a summary."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cluster_serving.node.config.choice import Shape
from cluster_serving.node.models.runtime import Runtime
from cluster_serving.node.tuning.report import TuningReport

_BAR = 16
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BUSY = 0.9


def show(report: TuningReport, console: Console) -> None:
    """Print a report."""
    if report.runtimes:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("engine", "precision"):
            table.add_column(heading)
        for heading in ("ms a batch", "largest error", "same arg max"):
            table.add_column(heading, justify="right")
        table.add_column("")
        for one in report.runtimes:
            is_best = Runtime(one.engine, one.precision) == report.choice.runtime
            table.add_row(
                one.engine,
                one.precision,
                "-" if one.ms is None else _figure(one.ms),
                "-" if one.relative_error is None else f"{one.relative_error:.2g}",
                "-" if one.arg_max_agreement is None else f"{one.arg_max_agreement:.1%}",
                "refused" if one.refused else "best" if is_best else "",
                style="red" if one.refused else "bold green" if is_best else None,
            )
        console.print(table)
        for one in report.runtimes:
            if one.refused:
                console.print(
                    f"{one.engine} in {one.precision} is refused: {one.refused}", style="red", highlight=False
                )
        console.print()
    console.print(_candidates(report))
    console.print(summary(report), highlight=False)


def summary(report: TuningReport) -> str:
    """Return the result in a few sentences."""
    choice, chosen = report.choice, report.chosen
    shape, middle = Shape(choice.workers, choice.threads).described(), chosen.middle
    lines = [
        f"Best: {shape}, batch {choice.batch}: {_figure(middle.rate)} records/s, p99 {_figure(middle.p99_ms)} ms.",
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


def _candidates(report: TuningReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("workers", "threads", "batch", "records/s"):
        table.add_column(heading, justify="right")
    table.add_column("", min_width=_BAR)
    for heading in ("p50 ms", "p99 ms"):
        table.add_column(heading, justify="right")
    table.add_column("")
    most = max((tried.middle.rate for tried in report.tried if tried.turns), default=1.0)
    for tried in report.tried:
        is_best = tried is report.chosen
        (workers, threads), batch = tried.candidate
        names = [Text(str(number)) for number in (workers, threads, batch)]
        if tried.refused or not tried.turns:
            figures = [Text("-"), Text(tried.refused, "red"), Text("-"), Text("-")]
        else:
            middle = tried.middle
            rate, p50_ms, p99_ms = (Text(_figure(value)) for value in middle)
            figures = [rate, Text(bar(middle.rate / most)), p50_ms, p99_ms]
        best = Text("best" if is_best else "")
        table.add_row(*names, *figures, best, style="bold green" if is_best else None)
    return table


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def bar(share: float) -> str:
    """Draw a bar for a share from 0 to 1."""
    whole, eighths = divmod(round(share * _BAR * 8), 8)
    return "█" * whole + _EIGHTHS[eighths].strip()
