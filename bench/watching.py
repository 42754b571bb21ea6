"""What it costs to watch a node: an open dashboard, scraped metrics and the periodic line of the log, in turns with and without.

A turn with watchers has the calls of an open page (every two seconds), of a Prometheus (every second, where 15 are usual), and
a line of the log with each heartbeat. The frontend and its reading of heartbeats are there in both turns. Turns come in pairs,
in an order of chance. Exits with 1 when the throughput is surely below 0.99 of that without.
"""

import argparse
import dataclasses
import mmap
import random
import sys
import threading
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench import report
from bench.driver import Target, driver
from bench.mlp import save_mlp
from bench.stage import stage
from bench.variants import Patch, copy
from cluster_serving.node.load.compare import interval

_PORT, _HTTP_PORT = 26397, 26398
_JOB = "watched"
_LEAST = 0.99
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
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with stage(_PORT) as place, driver() as client, _switch(place.directory / "switch") as off:
        model, chance = place.directory / "mlp", random.Random(0)
        save_mlp(model)
        environment = copy(place.directory / "switched", _PATCHES) | {_SWITCH: str(place.directory / "switch")}
        settings = {"modelPath": str(model), "batchSize": 64, "modelParallelism": 1, "threadPerModel": 1}
        settings["logInterval"] = 1
        watched = dataclasses.replace(place, environment=environment)
        with watched.node(_JOB, **settings), place.frontend(_JOB, _HTTP_PORT):
            target = Target("queue", place.port, _JOB, "row")
            client.closed(target, _WINDOW, options.seconds)  # warm-up
            rounds: list[report.Figures] = []
            for _ in range(options.rounds):
                rates: dict[bool, float] = {}
                for is_watched in chance.sample([True, False], 2):
                    off[0] = not is_watched
                    with _watchers(is_watched):
                        rates[is_watched] = client.closed(target, _WINDOW, options.seconds).rate_per_s
                rounds.append({"records_per_s": rates[True], "throughput.of_unwatched": rates[True] / rates[False]})
    report.show("A watched node, and the same without watchers", rounds)
    report.write(options.json, rounds)
    ratios = [figures["throughput.of_unwatched"] for figures in rounds]
    low, high = interval([1.0] * len(ratios), ratios)
    print(f"throughput {median(ratios):.3f} of that without, 95 % interval {low:.3f} - {high:.3f}")
    if high < _LEAST:
        sys.exit(f"the throughput is surely below {_LEAST} of that without")


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
