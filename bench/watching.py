"""Cost of watching a node: an open dashboard, scraped metrics and the periodic line of the log, in turns with and without them.

A turn with watchers has the calls of an open page (every two seconds), of a Prometheus (every second, where 15 are usual), and
a line of the log with each heartbeat. The frontend and its reading of heartbeats are there in all turns. A round is four turns:
with, without, without, with. `cpu_of_machine` is the further CPU time of frontend and supervisor as a share of all cores:
the most that a machine without idle time loses. The throughput of a machine that others use swings by more than that. Exits with
1 when half of the rounds have more than 0.01.
"""

import argparse
import dataclasses
import mmap
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench import cpu, report
from bench.driver import Target, driver
from bench.mlp import save_mlp
from bench.stage import stage
from bench.variants import Patch, copy

_PORT, _HTTP_PORT = 26397, 26398
_JOB = "watched"
_MOST = 0.01
_WINDOW = 1024
_SWITCH = "CLUSTER_SERVING_BENCH_SWITCH"
_PATCHES = (
    Patch(
        "node/supervisor/load_line.py",
        "class LoadLine:",
        f"""\
import mmap, os
with open(os.environ["{_SWITCH}"], "rb") as _file:
    OFF = mmap.mmap(_file.fileno(), 0, access=mmap.ACCESS_READ)


class LoadLine:""",
    ),
    Patch("node/supervisor/load_line.py", "if not self.interval_s or", "if OFF[0] or not self.interval_s or"),
)


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--seconds", type=float, default=4, help="of each turn")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with stage(_PORT) as place, driver() as client, _switch(place.directory / "switch") as off:
        model = place.directory / "mlp"
        save_mlp(model)
        environment = copy(place.directory / "switched", _PATCHES) | {_SWITCH: str(place.directory / "switch")}
        settings = {"modelPath": str(model), "batchSize": 64, "modelParallelism": 1, "threadPerModel": 1}
        settings["logInterval"] = 1
        watched = dataclasses.replace(place, environment=environment)
        with watched.node(_JOB, **settings), place.frontend(_JOB, _HTTP_PORT) as frontend:
            servers = [cpu.of_node(place, _JOB)[0], frontend, *frontend.children(recursive=True)]
            target = Target("queue", place.port, _JOB, "row")
            client.closed(target, _WINDOW, options.seconds)  # warm-up
            rounds: list[report.Figures] = []
            for _ in range(options.rounds):
                rates = dict.fromkeys((True, False), 0.0)
                cpu_s = dict.fromkeys((True, False), 0.0)
                begun_s = time.perf_counter()
                for is_watched in (True, False, False, True):
                    off[0] = not is_watched
                    before_s = cpu.used_s(servers)
                    with _watchers(is_watched):
                        rates[is_watched] += client.closed(target, _WINDOW, options.seconds).rate_per_s / 2
                    cpu_s[is_watched] += cpu.used_s(servers) - before_s
                half_s = (time.perf_counter() - begun_s) / 2
                share = (cpu_s[True] - cpu_s[False]) / half_s / (os.cpu_count() or 1)
                figures = {"records_per_s": rates[True], "throughput.of_unwatched": rates[True] / rates[False]}
                rounds.append({**figures, "cpu_of_machine": share})
    report.show("A watched node, and the same without watchers", rounds)
    report.write(options.json, rounds)
    if (share := report.medians(rounds)["cpu_of_machine"]) > _MOST:
        sys.exit(f"watchers take {share:.2%} of the machine, more than {_MOST:.0%}")


@contextmanager
def _watchers(are_there: bool) -> Generator[None]:
    """A page and a Prometheus that ask while the block lasts."""
    over = threading.Event()

    def ask(path: str, pause_s: float) -> None:
        while not over.wait(pause_s):
            with urllib.request.urlopen(f"http://127.0.0.1:{_HTTP_PORT}/{path}", timeout=10) as reply:
                reply.read()

    asked = [(f"dashboard/data?model={_JOB}", 2.0), ("metrics", 1.0)] if are_there else []
    threads = [threading.Thread(target=ask, args=arguments) for arguments in asked]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@contextmanager
def _switch(path: Path) -> Generator[mmap.mmap]:
    """A byte that is 1 while the periodic line is off, in a file that the node maps too."""
    path.write_bytes(b"\0")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as switch:
        yield switch


if __name__ == "__main__":
    main()
