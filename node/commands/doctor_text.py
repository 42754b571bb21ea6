"""Report of `doctor` as text for people: groups with their worst mark, and for each finding its cost, remedy and command."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from cluster_serving.client.servers.checks import Finding, Status, worst
from cluster_serving.client.servers.process.table import Cell, Table
from cluster_serving.node.doctor.report import Report

_MARKS: dict[Status, Cell] = {
    "ok": ("✓", "green"),
    "warn": ("!", "yellow"),
    "fail": ("✗", "bold red"),
    "skip": ("-", "dim"),
}
_INDENT = 2


def lines(report: Report, width: int, *, only_problems: bool, verbose: bool) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        report: findings and headlines.
        width: columns of the output.
        only_problems: leave out groups and findings without a problem.
        verbose: show passed, skipped and muted findings too.
    """
    for group, found in groupby(report.findings, lambda each: each.group):
        findings = list(found)
        shown = [each for each in findings if verbose or (each.is_problem and not each.muted)]
        if only_problems and not any(each.is_problem and not each.muted for each in findings):
            continue
        heading = Table("", "")
        heading.add(_MARKS[worst(findings)], (_title(group, findings, report.headlines.get(group, "")), "bold"))
        yield from heading.lines(width)
        if shown:
            yield from _table(shown).lines(width)
    yield ""
    yield report.closing()


def _title(group: str, findings: Sequence[Finding], headline: str) -> str:
    """Return the heading of a group: its headline, else the reason for which nothing was checked."""
    if not headline:
        skipped = all(each.status == "skip" for each in findings)
        headline = (
            findings[0].verdict.message if skipped else ", ".join(dict.fromkeys(each.subject for each in findings))
        )
    return f"{group}: {headline}" if headline else group


def _table(findings: Sequence[Finding]) -> Table:
    table = Table("", "", indent=_INDENT)
    for finding in findings:
        verdict = finding.verdict
        muted = " (muted)" if finding.muted else ""
        if not finding.is_problem:
            table.add(_MARKS[finding.status], f"{finding.code}  {verdict.message}")
            continue
        table.add(_MARKS[finding.status], (f"{finding.code}{muted}", "bold"))
        subject = f"{finding.subject}: " if finding.group in ("Frontend",) else ""
        end = "" if verdict.message.endswith(("?", ".")) else "."
        table.add("", f"{subject}{verdict.message}{end}")
        if verdict.fix:
            table.add("", f"→ {verdict.fix}")
        if verdict.command:
            table.add("", (f"  {verdict.command}", "cyan"))
    return table
