"""Table of a record's stages: the time of each stage, and a bar at its place in the whole."""

from collections.abc import Mapping

from cluster_serving.client.servers.process.table import Table

_STAGES = {
    "stream": "waited in the stream",
    "fill": "read, batch filling",
    "queue": "stream, batch filling",
    "wait": "waited for a worker",
    "run": "ran in the worker",
    "publish": "waited for the writer",
    "write": "written to Redis",
    "frontend": "rest of the frontend",
    "client": "connection and client",
}
_BAR = 34
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def stages_table(stages_ms: Mapping[str, float], total_ms: float, indent: int = 0) -> Table:
    """Return the table of the stages, in their order, with the total. Each bar begins at the end of the bar above.

    Args:
        stages_ms: milliseconds by the name of the stage, as in `Receipt.stages`.
        total_ms: sum of the stages.
        indent: empty columns on the left.
    """
    table = Table("stage", "ms", "%", "", numbers={"ms", "%"}, indent=indent)
    begins_ms = 0.0
    for name, took_ms in stages_ms.items():
        bar = _bar(begins_ms, took_ms, total_ms)
        begins_ms += took_ms
        share = f"{100 * took_ms / total_ms:.0f}" if total_ms else ""
        table.add(_STAGES[name], f"{took_ms:.3f}", share, bar)
    table.add("total", f"{total_ms:.3f}")
    return table


def _bar(begins_ms: float, took_ms: float, total_ms: float) -> str:
    """Draw a bar at its place in the whole, with an end exact to an eighth of a column. A time above 0 is always visible."""
    if not took_ms or not total_ms:
        return ""
    indent = min(int(_BAR * begins_ms / total_ms), _BAR - 1)
    eighths = max(1, round(8 * _BAR * (begins_ms + took_ms) / total_ms) - 8 * indent)
    whole, rest = divmod(eighths, 8)
    return " " * indent + _EIGHTHS[8] * whole + _EIGHTHS[rest].strip()
