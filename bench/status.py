"""Seconds that `status` takes for many jobs: real nodes of a tiny model, each of its own job, on one Redis.

CPU seconds are those of the command alone. Exits with 1 when half of the commands take longer than 0.5 s.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench import report, sleeper
from bench.stage import Stage, stage

_PORT = 26396
_AT_ONCE = 2  # nodes that start at the same time
_MOST_S = 0.5


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with stage(_PORT) as place, ExitStack() as nodes, ThreadPoolExecutor(_AT_ONCE) as threads:
        model = shutil.copy(sleeper.__file__, place.directory)
        settings = {"modelPath": model, "modelParallelism": 1, "threadPerModel": 1}
        serving = [place.node(f"job-{number}", **settings) for number in range(options.jobs)]
        for _ in threads.map(nodes.enter_context, serving):
            pass
        rounds = [_round(place, options.jobs) for _ in range(options.rounds)]
    report.show(f"`status` of {options.jobs} jobs", rounds)
    report.write(options.json, rounds)
    if (took_s := median(figures["status.s"] for figures in rounds)) > _MOST_S:
        sys.exit(f"status takes {took_s:.2f} s, more than {_MOST_S:g} s")


def _round(place: Stage, jobs: int) -> report.Figures:
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(place.directory / "state")}
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "status"]
    before, begun_s = os.times(), time.perf_counter()
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    took_s, after = time.perf_counter() - begun_s, os.times()
    if told.count(" ready ") != jobs:
        raise SystemExit(f"not all of {jobs} jobs are ready:\n{told}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return {"status.s": took_s, "status.cpu_s": cpu_s}


if __name__ == "__main__":
    main()
