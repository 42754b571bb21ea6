"""Speed of the queue: records a second with windowed clients, and the latency of one call at a time, beside the floor.

A tiny MLP (128 -> 256 -> 10 float32), native dialect, batch 64, one worker. The floor (`floor.py`) is measured in the same
rounds, on the same Redis. The CPU time of a record is told too, in microseconds in each process: on a machine that other programs
use at the same time, CPU time varies less than seconds do. Run it by `make bench`, or `python -m bench.queue [--json FILE]`.
"""

import sys
from pathlib import Path

_HERE = Path(__file__).parent
if __name__ == "__main__" and sys.path[0] == str(_HERE):
    sys.path[0] = str(_HERE.parent)  # as a script: this folder would hide the library's own module `queue`

import argparse
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context

import numpy as np
import psutil

from bench import floor, report
from bench.mlp import save_mlp
from bench.stage import Stage, stage
from cluster_serving.client import InputQueue

JOB = "bench_mlp"
_PORT = 26379
_WINDOW = 1024
_CHILDREN = ("reader", "writer", "worker")

Parts = Mapping[str, psutil.Process]
"""The processes that serve, by what they are."""


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--records", type=int, default=60_000, help="records a round")
    parser.add_argument("--calls", type=int, default=2000, help="calls a round, one at a time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=2, help="client processes")
    options = parser.parse_args()
    with stage(_PORT) as place:
        model = place.directory / "mlp"
        save_mlp(model)
        with (
            place.node(JOB, modelPath=str(model), batchSize=64, modelParallelism=1, threadPerModel=1),
            _floor_server(place) as floor_server,
            ProcessPoolExecutor(options.clients, get_context("spawn")) as clients,
        ):
            node = _processes(place)
            bare = {"redis": node["redis"], "server": floor_server}
            rounds = [_round(clients, options, node, bare) for _ in range(options.rounds)]
    report.show("Queue: tiny MLP, batch 64, one worker", rounds)
    report.write(options.json, rounds)


def _round(clients: ProcessPoolExecutor, options: argparse.Namespace, node: Parts, bare: Parts) -> report.Figures:
    floor_rate, floor_cost_us = _load(clients, options, floor.throughput, bare)
    rate, cost_us = _load(clients, options, throughput, node)
    floor_ms = 1000 * np.array(clients.submit(floor.latencies_s, _PORT, options.calls).result())
    ms = 1000 * np.array(clients.submit(latencies_s, _PORT, options.calls).result())
    return {
        "queue.records_per_s": rate,
        "queue.floor_records_per_s": floor_rate,
        "queue.floor_ratio": rate / floor_rate,
        "predict.p50_ms": float(np.quantile(ms, 0.5)),
        "predict.p99_ms": float(np.quantile(ms, 0.99)),
        "predict.floor_p50_ms": float(np.quantile(floor_ms, 0.5)),
        "predict.floor_ratio": float(np.quantile(ms, 0.5) / np.quantile(floor_ms, 0.5)),
        **{f"{part}.cpu_us_per_record": cost for part, cost in cost_us.items()},
        **{f"floor.{part}.cpu_us_per_record": cost for part, cost in floor_cost_us.items()},
        "queue.cpu_us_per_record": sum(cost_us.values()),
        "floor.cpu_us_per_record": sum(floor_cost_us.values()),
    }


def _load(
    clients: ProcessPoolExecutor, options: argparse.Namespace, run: Callable[[int, int, int], None], parts: Parts
) -> tuple[float, report.Figures]:
    """Records a second, and what one costs each part and the clients, in microseconds of CPU."""
    each = options.records // options.clients
    for warming in [clients.submit(run, _PORT, 2000, _WINDOW) for _ in range(options.clients)]:
        warming.result()
    before_s = _times_s(parts)
    begun_s = time.perf_counter()
    running = [clients.submit(_cpu_s, run, _PORT, each, _WINDOW) for _ in range(options.clients)]
    clients_s = sum(client.result() for client in running)
    took_s = time.perf_counter() - begun_s
    records: int = each * options.clients
    cost_us = {part: 1e6 * (after_s - before_s[part]) / records for part, after_s in _times_s(parts).items()}
    return records / took_s, cost_us | {"client": 1e6 * clients_s / records}


def _cpu_s(run: Callable[[int, int, int], None], *arguments: int) -> float:
    begun_s = time.process_time()
    run(*arguments)
    return time.process_time() - begun_s


def _processes(place: Stage) -> Parts:
    """Redis and the children of the node."""
    found = {"redis": psutil.Process(int((place.directory / "redis" / "redis.pid").read_text()))}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            kind = process.name().partition("-")[0]
            if kind in _CHILDREN and str(place.directory) in process.environ().get("CLUSTER_SERVING_HOME", ""):
                found[kind] = process
    return found


def _times_s(parts: Parts) -> dict[str, float]:
    """CPU time of each part so far."""
    times = {part: process.cpu_times() for part, process in parts.items()}
    return {part: used.user + used.system for part, used in times.items()}


def throughput(port: int, records: int, window: int) -> None:
    """Send this many records with at most `window` under way, and take every answer."""
    row = np.ones(128, np.float32)
    with InputQueue(port=port, name=JOB) as queue:
        answers = queue.predict_many(({"x": row} for _ in range(records)), window=window)
        assert sum(np.asarray(answer).shape == (10,) for answer in answers) == records


def latencies_s(port: int, calls: int) -> list[float]:
    """Seconds of each of so many `predict` calls, one at a time."""
    row = np.ones(128, np.float32)
    found: list[float] = []
    with InputQueue(port=port, name=JOB) as queue:
        for _ in range(calls):
            begun_s = time.perf_counter()
            queue.predict({"x": row})
            found.append(time.perf_counter() - begun_s)
    return found


@contextmanager
def _floor_server(place: Stage) -> Generator[psutil.Process]:
    command = [sys.executable, "-m", "bench.floor", str(place.port)]
    server = psutil.Popen(command, stdout=subprocess.PIPE, cwd=_HERE.parent)
    assert server.stdout is not None
    server.stdout.readline()
    try:
        yield server
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


if __name__ == "__main__":
    main()
