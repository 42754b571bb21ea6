"""Text of `trace`: the facts about a record, and a bar for each stage."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from cluster_serving.client.servers.process.printable import printable
from cluster_serving.client.servers.process.table import Table, facts

_STAGES = {
    "stream": "waited in the stream",
    "fill": "read, batch filling",
    "wait": "waited for a worker",
    "run": "ran in the worker",
    "publish": "waited for the writer",
    "write": "written to Redis",
}
_BAR = 34
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def page(found: dict[str, Any], width: int) -> Iterator[str]:
    """Yield the lines about a record and its stages, in `width` columns. Each bar begins at the end of the bar above."""
    try:
        enqueued = f"{datetime.fromtimestamp(found['enqueued_ms'] / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
    except (OverflowError, ValueError, OSError):  # a client may have chosen the id of the entry
        enqueued = f"{found['enqueued_ms']} ms"
    again = f", delivery {found['deliveries']}" if found["deliveries"] != 1 else ""
    shown = {
        "job": found["job"],
        "enqueued": f"{enqueued}, entry {found['entry']}",
        "ran on": f"{found['node']}, worker {found['worker']}, in a batch of {found['batch']}{again}",
        "model": found["model"] or "-",
    }
    if found["error"]:
        shown["failed"] = "{code}: {message}".format(**found["error"])
    yield f"Record {printable(found['uri'])}"
    yield from facts(shown, indent=2).lines(width)
    yield ""
    table = Table("stage", "ms", "%", "", numbers={"ms", "%"}, indent=2)
    stages, total_ms = found["stages_ms"], found["total_ms"]
    begins_ms = 0.0
    for name, took_ms in stages.items():
        bar = _bar(begins_ms, took_ms, total_ms)
        begins_ms += took_ms
        share = f"{100 * took_ms / total_ms:.0f}" if total_ms else ""
        table.add(_STAGES[name], f"{took_ms:.3f}", share, bar)
    table.add("total", f"{total_ms:.3f}")
    yield from table.lines(width)


def _bar(begins_ms: float, took_ms: float, total_ms: float) -> str:
    """Draw a bar at its place in the whole, with an end exact to an eighth of a column. A time above 0 is always visible."""
    if not took_ms or not total_ms:
        return ""
    indent = min(int(_BAR * begins_ms / total_ms), _BAR - 1)
    eighths = max(1, round(8 * _BAR * (begins_ms + took_ms) / total_ms) - 8 * indent)
    whole, rest = divmod(eighths, 8)
    return " " * indent + _EIGHTHS[8] * whole + _EIGHTHS[rest].strip()
