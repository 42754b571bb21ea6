"""What receipts and metrics cost: the product beside copies of it without them, in turns on one Redis.

`receipts` are the stage times in each answer, `metrics` the histograms that every process of the node fills; counters stay,
since the node itself goes by them. A ratio is that of the product to the copy without, round by round: 0.98 of the throughput
is a cost of 2 %. The copy without `nothing` is the product again: its ratio says what chance does. Exits with 1 when the
throughput is surely below 0.98.
"""

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench import cpu, report
from bench.architectures import SAVES
from bench.compare import interval
from bench.driver import Driver, Target, driver
from bench.stage import Stage, stage
from bench.variants import Patch, copy

_PORT = 26389
_LEAST = 0.98
_WHOLE = "whole"
_RECEIPTS = (
    Patch("node/writer.py", "results.batch(held, now_ms, clock_offset_ms=offset_ms, worker=worker)", 'b"{}"'),
    Patch(
        "node/results.py", "came = row.id, row.read_us / 1000 + clock_offset_ms, row.deliveries", 'came = b"", 0.0, 0'
    ),
)
_METRICS = (
    Patch("node/metrics.py", "cells[self.first + bisect_left(self.bounds, value)] += times", "return"),
    Patch("node/metrics.py", "ids, at = sorted(ids), 0", "return\n    ids, at = sorted(ids), 0"),
)
WITHOUT: dict[str, Sequence[Patch]] = {
    "receipts": _RECEIPTS,
    "metrics": _METRICS,
    "both": (*_RECEIPTS, *_METRICS),
    "nothing": (),
}
"""By what is left out; of the last one, the ratio is what chance makes of the same code."""


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--model", choices=SAVES, default="mlp")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0.7, help="of each turn")
    parser.add_argument("--rounds", type=int, default=80)
    options = parser.parse_args()
    with stage(_PORT) as place, driver() as client, ExitStack() as stack:
        model = place.directory / options.model
        SAVES[options.model](model)
        for name, patches in {_WHOLE: (), **WITHOUT}.items():
            copied = dataclasses.replace(place, environment=copy(place.directory / f"without-{name}", patches))
            settings = {"modelPath": str(model), "batchSize": options.batch, "modelParallelism": 1, "threadPerModel": 1}
            stack.enter_context(copied.node(_job(name), **settings))
        content = "row" if options.model == "mlp" else "jpeg"
        targets = {name: Target("queue", place.port, _job(name), content) for name in (_WHOLE, *WITHOUT)}
        window = max(1024 if content == "row" else 0, 4 * options.batch)
        rounds: list[report.Figures] = []
        for _ in range(1 + options.rounds):  # the first one is the warm-up
            rounds.append(_round(place, client, targets, window, options.seconds))
            first, *others = targets.items()
            targets = dict([*others, first])  # in the next round another one begins
    rounds = rounds[1:]
    show(rounds, f"{options.model}, batch {options.batch}, one worker of one thread")
    report.write(options.json, rounds)
    if any(_of_without(rounds, name, "throughput")[2] < _LEAST for name, patches in WITHOUT.items() if patches):
        sys.exit(f"the throughput is surely below {_LEAST} of that without")


def show(rounds: Sequence[report.Figures], told: str) -> None:
    """Print the ratios and where they lie with a confidence of 95 %."""
    table = Table(
        "of that without",
        title="The product beside copies of it without receipts and metrics",
        caption=f"{told}; {len(rounds)} rounds; {report.machine()}",
        title_justify="left",
    )
    for heading in ("throughput", "95 % interval", "CPU", "95 % interval"):
        table.add_column(heading, justify="right")
    for name in WITHOUT:
        cells: list[str] = []
        for kind in ("throughput", "cpu"):
            ratio, low, high = _of_without(rounds, name, kind)
            cells += [f"{ratio:.3f}", f"{low:.3f} - {high:.3f}"]
        table.add_row(name, *cells)
    Console().print(table)


def _of_without(rounds: Sequence[report.Figures], name: str, kind: str) -> tuple[float, float, float]:
    ratios = [figures[f"{name}.{kind}_of_without"] for figures in rounds]
    return median(ratios), *interval([1.0] * len(ratios), ratios)


def _round(place: Stage, client: Driver, targets: Mapping[str, Target], window: int, seconds: float) -> report.Figures:
    rates: dict[str, float] = {}
    cpu_s: dict[str, float] = {}
    for name, target in targets.items():
        processes = [*cpu.of_node(place, target.job), cpu.of_redis(place)]
        before_s = cpu.used_s(processes)
        closed = client.closed(target, window, seconds)
        if closed.failed:
            raise SystemExit(f"{closed.failed} of {closed.answered} records failed")
        rates[name] = closed.rate_per_s
        cpu_s[name] = (cpu.used_s(processes) - before_s) / closed.answered + closed.cpu_s_per_answer
    figures = {"records_per_s": rates[_WHOLE], "cpu_us_per_record": 1e6 * cpu_s[_WHOLE]}
    for name in WITHOUT:
        figures[f"{name}.throughput_of_without"] = rates[_WHOLE] / rates[name]
        figures[f"{name}.cpu_of_without"] = cpu_s[_WHOLE] / cpu_s[name]
    return figures


def _job(name: str) -> str:
    return f"without_{name}"


if __name__ == "__main__":
    main()
