"""Load of jobs as text for people: the table of `status`, and the live line of `serve`."""

from collections.abc import Mapping, Sequence
from typing import Any

from cluster_serving.client.servers.picture import JobPicture
from cluster_serving.client.servers.process.table import Table
from cluster_serving.client.wire.heartbeat import Heartbeat

_HEADINGS = ("job", "state", "rec/s", "p50", "p99", "backlog", "oldest", "fill", "busy", "err/s", "dead")


def jobs_table(reports: Sequence[Mapping[str, Any]], marked: str | None = None) -> Table:
    """Return a table with a row for each report of `status`, and the limit, the warning and the problem of the job below it.

    Args:
        reports: reports of `status`.
        marked: job whose row is marked.
    """
    table = Table(*_HEADINGS, numbers=_HEADINGS[2:], wide={"job"})
    for report in reports:
        figures = {"backlog": str(report.get("backlog", "-"))}
        if "load" in report:
            figures = cells(JobPicture(**report["load"]))
        row = (figures.get(heading, "-") for heading in _HEADINGS[2:])
        table.add(report["job"], report["state"], *row, style="reverse" if report["job"] == marked else None)
        for text in (report.get("limit", {}).get("sentence"), report.get("warning"), report.get("problem")):
            if text:
                table.add_below(text)
    return table


def cells(picture: JobPicture) -> dict[str, str]:
    """Return the figures of a job for people, by heading."""
    values = (
        number(picture.records_s),
        duration(picture.p50_s),
        duration(picture.p99_s),
        f"{picture.backlog:,}",
        duration(picture.oldest_s),
        f"{picture.fill:.0%}" if picture.fill else "-",
        f"{picture.mean_busy:.0%}",
        number(picture.errors_s),
        str(picture.dead_letters),
    )
    return dict(zip(_HEADINGS[2:], values, strict=True))


def live_line(beat: Heartbeat) -> str:
    """Return rate, latency and backlog of a node as one line."""
    load, figures = beat.load, beat.figures
    parts = ["idle"]
    if load is not None and load.records_s:
        parts = [f"{number(load.records_s)} records/s", f"p50 {duration(load.p50_s)}", f"p99 {duration(load.p99_s)}"]
    parts += [f"backlog {figures['backlog']:,}", f"{figures['answered']:,} answered"]
    if figures["failed"]:
        parts.append(f"{figures['failed']:,} failed")
    return "   ".join(parts)


def number(value: float) -> str:
    """Return a rate with two digits at least: 0, 0.4, 12, 3,400."""
    return f"{value:.1f}" if 0 < value < 10 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Return seconds in the unit that fits: 0.4ms, 12ms, 3.1s, 7min, 5h."""
    if not seconds:
        return "-"
    for factor, unit, most in ((1000, "ms", 1), (1, "s", 100), (1 / 60, "min", 6000)):
        value = seconds * factor
        if round(value) < most * factor:
            return f"{value:.1f}{unit}" if round(value, 1) < 10 else f"{value:.0f}{unit}"
    return f"{seconds / 3600:.0f}h"
