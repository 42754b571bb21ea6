"""Report of a run: a table for people, or JSON."""

import msgspec
from rich.console import Console
from rich.table import Table

from cluster_serving.node.chaos.run import ChaosReport

_NO_BREAK = "\u00a0"


def as_json(report: ChaosReport) -> str:
    """Return the report as a JSON object."""
    told = {
        "seed": report.seed,
        "passed": report.passed,
        "figures": report.figures,
        "checks": report.verdicts,
        "notes": report.notes,
        "directory": report.directory,
    }
    return msgspec.json.format(msgspec.json.encode(told)).decode()


def show(report: ChaosReport, console: Console) -> None:
    """Print a line for each check, the figures, the notes and the seed."""
    table = Table("", "check", title_justify="left", highlight=False)
    table.add_column("of", justify="right")
    table.add_column("failed", justify="right")
    table.add_column("the first one", overflow="fold")
    for verdict in report.verdicts:
        mark = "[green]pass[/]" if verdict.passed else "[bold red]FAIL[/]"
        count = f"{verdict.count:,}" if verdict.count else ""
        table.add_row(mark, verdict.check, count, f"{verdict.failed:,}" if verdict.failed else "", verdict.first)
    console.print(table)
    figures = [f"{name} {value:,}".replace(" ", _NO_BREAK) for name, value in report.figures.items()]
    console.print(", ".join(figures), highlight=False)
    for note in report.notes:
        console.print(f"Note: {note}.", highlight=False)
    if report.directory is not None:
        console.print(f"Logs are kept in {report.directory}", highlight=False, soft_wrap=True)
    console.print(f"{'Passed' if report.passed else 'FAILED'}. Seed {report.seed}", highlight=False)
