"""Latency below the capacity and goodput beyond it, of requests that come by the clock, whatever the server does.

In each round: the batch-1 time of the model in a bare loop, the capacity in a closed loop, and then a load at each share of it.
Latency counts from the moment a request was due (`load.py`); a request that is never answered counts up to the end of the load.
From the share 1 on every request has a deadline, and the goodput is the rate of answers within it, as a share of the capacity,
without the beginning of the load, when the queue was empty. `begun_late`: records whose batch began after their deadline, and by
how much at most; `wasted_share`: the share of computed records that were done after their deadline (both from receipts, so over
the queue alone).

A sender that could not keep up is named below the table: its latencies still count from the moments requests were due.
"""

import argparse
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import report
from bench.architectures import SAVES
from bench.arrivals import ARRIVALS
from bench.driver import Driver, Target, driver
from bench.latency import fell_behind, figures_of
from bench.loops import RUNTIMES, Loops, Way, loops, save_batch
from bench.stage import Stage, stage

_PORT, _HTTP_PORT = 26387, 26388
_WINDOW_OF_ROWS = {"queue": 1024, "http": 64}
_LEAST_DEADLINE_S, _DEADLINE_RUNS = 0.1, 20
_LOAD_DEADLINES = 5  # a load with deadlines lasts for at least so many: the first one does not count
_LIMIT_RUNS, _LIMIT_MS = 3, 2


class _Case(NamedTuple):
    """Target to measure, the number of requests that fill it, the loop beside it, and the name that its figures begin with."""

    target: Target
    window: int
    loop: Loops
    name: str


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    options = _options()
    with stage(_PORT) as place, driver() as client, _served(place, options) as case:
        client.closed(case.target, case.window, options.seconds)  # warm-up
        rounds: list[report.Figures] = []
        behind: list[str] = []
        for number in range(options.rounds):
            figures, found = _round(client, case, options, number)
            rounds.append(figures)
            behind += [f"round {number + 1}, {share}" for share in found]
    report.show(f"Open loop: {case.name}, {options.content}", rounds)
    if behind:
        print(f"the sender fell behind: {'; '.join(behind)}")
    report.write(options.json, rounds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--model", choices=SAVES, default="mlp")
    parser.add_argument("--over", choices=_WINDOW_OF_ROWS, default="queue")
    parser.add_argument(
        "--content", choices=("tensor", "jpeg"), default="jpeg", help="of image models; HTTP takes JPEG"
    )
    parser.add_argument("--arrivals", choices=ARRIVALS, default="poisson")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.5, 0.8, 3.0], help="of the capacity")
    parser.add_argument(
        "--deadline-ms", type=float, help="from the share 1 on; default: 20 runs of batch 1, at least 100"
    )
    parser.add_argument("--workers", type=int, help="default: what the node chooses")
    parser.add_argument("--threads", type=int, help="of one worker; default: the same")
    parser.add_argument("--batch", type=int, help="most records in one; default: the same")
    parser.add_argument("--seconds", type=float, default=10, help="of each load")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.model == "mlp":
        options.content = "row"
    elif options.over == "http" and options.content == "tensor":
        parser.error("--over http sends pictures as JPEG: --content jpeg")
    return options


@contextmanager
def _served(place: Stage, options: argparse.Namespace) -> Generator[_Case]:
    """A node with the model, and a frontend where one is asked for."""
    path = place.directory / options.model
    SAVES[options.model](path)
    batch = save_batch(place.directory, options.content, 1)
    settings = {"modelParallelism": options.workers, "threadPerModel": options.threads, "batchSize": options.batch}
    job = f"open_{options.model}"
    with place.node(job, modelPath=str(path), **settings):
        told = place.heartbeat(job)
        window = 4 * told["workers"] * told["batch_size"]
        if options.content == "row":
            window = _WINDOW_OF_ROWS[options.over]
        name = f"{options.model}.{options.over}.{options.arrivals}"
        precision = "bf16" if told["precision"] == "bf16" else "f32"
        with loops(RUNTIMES[told["engine"]], path, batch, Way(1, told["threads"], 1), precision) as loop:
            if options.over == "queue":
                yield _Case(Target("queue", place.port, job, options.content), window, loop, name)
            else:
                with place.frontend(job, _HTTP_PORT):
                    yield _Case(Target("http", _HTTP_PORT, job, options.content), window, loop, name)


def _round(client: Driver, case: _Case, options: argparse.Namespace, number: int) -> tuple[report.Figures, list[str]]:
    """The figures, and the shares at which the sender fell behind."""
    model_ms = 1000 / case.loop.run(options.seconds / 4).rows_per_s
    closed = client.closed(case.target, case.window, options.seconds)
    if closed.failed:
        raise SystemExit(f"{closed.failed} of {closed.answered} requests failed in the closed loop")
    figures: report.Figures = {"model_ms": model_ms, "capacity_per_s": closed.rate_per_s}
    behind: list[str] = []
    for share in options.shares:
        deadline_s = _deadline_s(options, model_ms) if share >= 1 else None
        seconds = max(options.seconds, _LOAD_DEADLINES * (deadline_s or 0))
        due_s = ARRIVALS[options.arrivals](share * closed.rate_per_s, seconds, number)
        trace = client.open(case.target, due_s, deadline_s)
        found = figures_of(trace, closed.rate_per_s, deadline_s)
        if deadline_s is None:
            found["p99_of_limit"] = found["p99_ms"] / (_LIMIT_RUNS * model_ms + _LIMIT_MS)
        figures |= {f"{share:g}x.{name}": value for name, value in found.items()}
        if fell_behind(trace):
            behind.append(f"{share:g}x")
    return {f"{case.name}.{name}": value for name, value in figures.items()}, behind


def _deadline_s(options: argparse.Namespace, model_ms: float) -> float:
    if options.deadline_ms:
        return float(options.deadline_ms / 1000)
    return max(_LEAST_DEADLINE_S, _DEADLINE_RUNS * model_ms / 1000)


if __name__ == "__main__":
    main()
