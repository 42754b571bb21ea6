"""Report of a run: a table for people, or JSON."""

import json

import click
import msgspec

from cluster_serving.client.servers.process.printable import printable
from cluster_serving.client.servers.process.table import Table
from cluster_serving.node.chaos.callers.tally import Tally
from cluster_serving.node.chaos.run import ChaosReport


def as_json(report: ChaosReport) -> str:
    """Return the report as a JSON object."""
    told = {
        "seed": report.seed,
        "passed": report.passed,
        "callers": {name: {**tally.counts(), "refused": tally.refused} for name, tally in report.callers.items()},
        "figures": report.figures,
        "checks": msgspec.to_builtins(report.verdicts),
        "notes": report.notes,
        "directory": report.directory,
    }
    return json.dumps(told, indent=2)


def show(report: ChaosReport) -> None:
    """Print a line for each check and for each caller, the figures, the notes and the seed."""
    checks(report).show()
    click.echo()
    callers(report).show()
    click.echo()
    figures(report).show()
    click.echo()
    for note in report.notes:
        click.echo(f"Note: {printable(note)}.")
    if report.directory is not None:
        click.echo(f"Logs are kept in {report.directory}")
    click.echo(f"{'Passed' if report.passed else 'FAILED'}. Seed {report.seed}")


def checks(report: ChaosReport) -> Table:
    """Return a table of the checks, each with its first failed case."""
    table = Table("", "check", "of", "failed", "the first one", numbers={"of", "failed"})
    for verdict in report.verdicts:
        mark = ("pass", "green") if verdict.passed else ("FAIL", "bold red")
        count, failed = (f"{number:,}" if number else "" for number in (verdict.count, verdict.failed))
        table.add(mark, verdict.check, count, failed, verdict.first)
    return table


def callers(report: ChaosReport) -> Table:
    """Return a table of the callers: records sent, answers, and rounds that ended otherwise."""
    counts = list(Tally().counts())
    table = Table("caller", *counts, "refused for", numbers=counts)
    for name, tally in report.callers.items():
        refused = ", ".join(f"{error} {count:,}" for error, count in tally.refused.items())
        table.add(name, *(f"{count:,}" for count in tally.counts().values()), refused)
    return table


def figures(report: ChaosReport) -> Table:
    """Return a table of the figures. A name without a unit is a count."""
    table = Table("figure", "value", numbers={"value"})
    for name, value in report.figures.items():
        table.add(name, f"{value:,}")
    return table
