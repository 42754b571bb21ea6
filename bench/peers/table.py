"""The table of `bench.peers`."""

from collections.abc import Mapping, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from bench import report
from bench.peers.contest import CONNECTIONS, Contest
from bench.peers.servers import KINDS
from cluster_serving.node.load.machine import machine

_OURS = "ours"


def show(contests: Sequence[Contest], versions: Mapping[str, str], out: Mapping[str, str]) -> None:
    """Print it.

    Args:
        contests: one a model.
        versions: of the other servers.
        out: servers without figures, and why.
    """
    rounds = max((len(contest.rounds) for contest in contests), default=0)
    table = Table(
        title=f"Records/s over {' and '.join(map(str, CONNECTIONS))} connections, ours / theirs at best, and ms at equal load",
        caption=_caption(rounds, versions, out),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("server")
    for heading in ("arranged", *map(str, CONNECTIONS), "ours /", "p50 ms", "p99 ms"):
        table.add_column(heading, justify="right")
    for contest in contests:
        table.add_row(f"[bold]{contest.model}[/bold]", *[""] * 4, "at", f"{report.number(contest.load_per_s)}/s")
        for name in contest.servers:
            table.add_row(name, str(contest.kept(name)), *_cells(contest, name))
        table.add_section()
    Console().print(table)


def _cells(contest: Contest, name: str) -> list[str]:
    figures = [f"{each}.records_per_s" for each in CONNECTIONS]
    rates = [report.number(_median(contest, name, figure)) for figure in figures]
    times = [report.number(_median(contest, name, figure)) for figure in ("p50_ms", "p99_ms")]
    if name == _OURS or _OURS not in contest.servers:
        return [*rates, "", *times]
    ratios = [_best(contest, each, _OURS) / _best(contest, each, name) for each in range(len(contest.rounds))]
    return [*rates, f"{median(ratios):.2f}", *times]


def _median(contest: Contest, name: str, figure: str) -> float:
    return median(each[f"{contest.model}.{name}.{figure}"] for each in contest.rounds)


def _best(contest: Contest, number: int, name: str) -> float:
    """Records a second in a round, over as many connections as suit the server."""
    return max(contest.rounds[number][f"{contest.model}.{name}.{each}.records_per_s"] for each in CONNECTIONS)


def _caption(rounds: int, versions: Mapping[str, str], out: Mapping[str, str]) -> str:
    told = [f"medians of {rounds} rounds; arranged: copies of the model x threads x records in one run"]
    told += [f"{name} {version}, {KINDS[name].told}" for name, version in versions.items()]
    told += [f"without {name}: {why}" for name, why in out.items()]
    return "; ".join([*told, machine()])
