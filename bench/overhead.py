"""Cost of receipts, metrics and spans: the product with and without them, in turns, in the same processes.

`receipts` are the stage times in each answer, and the search for the slowest record; `metrics` the histograms that every process
of the node fills; counters stay, since the node itself goes by them. `spans` are the spans of OpenTelemetry: every record carries
a trace, and one in a hundred is sampled and sent to a receiver. The node is a copy of the product in which each can be switched off
while the node runs. A ratio is a figure of the whole divided by the same with something off, round by round: 0.98 of the throughput
is a cost of 2 %. With `nothing` off, the ratio shows the effect of chance. Exits with 1 when the throughput is surely below 0.98.
"""

import argparse
import dataclasses
import mmap
import random
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench import cpu, report
from bench.architectures import SAVES
from bench.driver import Driver, Target, driver
from bench.queue_client import QueueClient
from bench.stage import Stage, stage
from bench.variants import Patch, copy
from cluster_serving.node.load.compare import interval
from cluster_serving.node.load.machine import machine

_PORT = 26389
_JOB = "overhead"
_LEAST = 0.98
_WHOLE = "whole"
_SWITCHES = "CLUSTER_SERVING_BENCH_SWITCHES"
_OFF = f"""\
import mmap, os
with open(os.environ["{_SWITCHES}"], "rb") as _file:
    OFF = mmap.mmap(_file.fileno(), 0, access=mmap.ACCESS_READ)


"""
_RECEIPTS, _METRICS, _SPANS = range(3)  # places of their switches
_TRACED_EACH = 100
PATCHES = (
    Patch("node/writer/writer.py", "class Writer:", f"{_OFF}class Writer:"),
    Patch(
        "node/writer/writer.py",
        "receipt = batch_receipt(",
        f"receipt = None if OFF[{_RECEIPTS}] else batch_receipt(",
    ),
    Patch(
        "node/writer/writer.py",
        "batch = receipt.encode()",
        f'batch = b"{{}}" if OFF[{_RECEIPTS}] else receipt.encode()',
    ),
    Patch("node/writer/writer.py", "self._slowest.offer(", f"OFF[{_RECEIPTS}] or self._slowest.offer("),
    Patch("node/writer/writer.py", "self._spans.offer(", f"OFF[{_SPANS}] or self._spans.offer("),
    Patch("node/writer/fields.py", "class ResultFields:", f"{_OFF}class ResultFields:"),
    Patch("node/writer/fields.py", "read_ms = row.read_us", f"read_ms = 0.0 if OFF[{_RECEIPTS}] else row.read_us"),
    Patch("node/writer/fields.py", "pack(row.id, ", f'pack(b"" if OFF[{_RECEIPTS}] else row.id, '),
    Patch("node/ring/metrics.py", "class Measure(", f"{_OFF}class Measure("),
    Patch(
        "node/ring/metrics.py",
        "cells[self.first + bisect_left",
        f"if OFF[{_METRICS}]: return\n        cells[self.first + bisect_left",
    ),
    Patch(
        "node/ring/metrics.py", "ids, at = sorted(ids), 0", f"if OFF[{_METRICS}]: return\n    ids, at = sorted(ids), 0"
    ),
)
WITHOUT = {
    "receipts": (_RECEIPTS,),
    "metrics": (_METRICS,),
    "both": (_RECEIPTS, _METRICS),
    "spans": (_SPANS,),
    "nothing": (),
}
"""Switches that are off, by the name of a turn; with `nothing` off, the ratio is the effect of chance on the same code."""


class _Traced(Target):
    """A target whose records carry traces."""

    def connect(self) -> QueueClient:
        """A client of it."""
        return QueueClient(self.port, self.job, self.content, _TRACED_EACH)


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--model", choices=SAVES, default="mlp")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("--rounds", type=int, default=80)
    options = parser.parse_args()
    content = "row" if options.model == "mlp" else "jpeg"
    window = max(1024 if content == "row" else 0, 4 * options.batch)
    with (
        stage(_PORT) as place,
        driver() as client,
        _switches(place.directory / "switches") as switches,
        _receiver() as receiver,
    ):
        model = place.directory / options.model
        SAVES[options.model](model)
        environment = copy(place.directory / "switched", PATCHES) | {_SWITCHES: str(place.directory / "switches")}
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver
        settings = {"modelPath": str(model), "batchSize": options.batch, "modelParallelism": 1, "threadPerModel": 1}
        settings["openTelemetry"] = True
        with dataclasses.replace(place, environment=environment).node(_JOB, **settings):
            target = _Traced("queue", place.port, _JOB, content)
            turns, chance = {_WHOLE: (), **WITHOUT}, random.Random(0)
            rounds: list[report.Figures] = []
            for _ in range(1 + options.rounds):  # the first one is the warm-up
                order = dict(chance.sample(list(turns.items()), len(turns)))
                rounds.append(_round(place, client, target, switches, order, window, options.seconds))
    rounds = rounds[1:]
    show(rounds, f"{options.model}, batch {options.batch}, one worker of one thread")
    report.write(options.json, rounds)
    if any(_of_without(rounds, name, "throughput")[2] < _LEAST for name, off in WITHOUT.items() if off):
        sys.exit(f"the throughput is surely below {_LEAST} of that without")


def show(rounds: Sequence[report.Figures], told: str) -> None:
    """Print the ratios and where they lie with a confidence of 95 %."""
    table = Table(
        "of that without",
        title="The product, and the same without receipts, metrics and spans",
        caption=f"{told}; {len(rounds)} rounds; {machine()}",
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


def _round(
    place: Stage,
    client: Driver,
    target: Target,
    switches: mmap.mmap,
    turns: Mapping[str, Sequence[int]],
    window: int,
    seconds: float,
) -> report.Figures:
    rates: dict[str, float] = {}
    cpu_s: dict[str, float] = {}
    processes = [*cpu.of_node(place, target.job), cpu.of_redis(place)]
    for name, off in turns.items():
        for switch in range(len(switches)):
            switches[switch] = switch in off
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


@contextmanager
def _switches(path: Path) -> Generator[mmap.mmap]:
    """A byte for each of receipts, metrics and spans, 1 where it is off, in a file that the processes of the node map too."""
    path.write_bytes(bytes(3))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as switches:
        yield switches


@contextmanager
def _receiver() -> Generator[str]:
    """A receiver that takes all spans, and looks at none; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    main()
