"""Do Redis' io-threads pay: images a second with 1, 2, ... threads, in float32 and in uint8, and small rows, without a model?

Each number of threads has a Redis of its own in each round, which reads by the threads too. `gain` is the rate beside one thread.
Threads of Redis compete with reader, worker and client for the cores.
`python -m bench.io_threads [--threads 1 2 4] [--json FILE]`
"""

import argparse
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench import mlp, pictures, report
from bench.payload import measured
from bench.records import DISTINCT, RECORDS
from bench.stage import stage
from cluster_serving.client import InputQueue
from cluster_serving.node.job.redis_program import find_server

_PORT = 26399
_JOB = "io-threads"
_WINDOW = 64


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="the first is compared with")
    parser.add_argument("--records", type=int, default=3000, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = [RECORDS["row"](number) for number in range(DISTINCT)]
    tensors = [RECORDS["tensor"](number) for number in range(DISTINCT)]
    pixels = [{"image": each["image"].astype(np.uint8)} for each in tensors]
    rounds: list[report.Figures] = []
    for _ in range(options.rounds):
        figures: report.Figures = {}
        for threads in options.threads:
            with _server(threads), stage(_PORT) as place:
                mlp.save_mlp(place.directory / "mlp")
                loads = {"row": rows, "uint8": pixels, "float32": tensors}
                for name, records in loads.items():
                    model = str(place.directory / "mlp") if name == "row" else pictures.__file__
                    settings = {"modelPath": model, "modelParallelism": 1, "threadPerModel": 1, "batchSize": 16}
                    with place.node(_JOB, **settings), InputQueue(port=_PORT, name=_JOB) as queue:
                        rate, redis_us = measured(place, queue, records, options.records, _WINDOW)
                    figures[f"{name}.{threads}.records_per_s"] = rate
                    figures[f"{name}.{threads}.redis_us"] = redis_us
                    figures[f"{name}.{threads}.gain"] = rate / figures[f"{name}.{options.threads[0]}.records_per_s"]
        rounds.append(figures)
    report.show("Redis with io-threads, without a model", rounds)
    report.write(options.json, rounds)


@contextmanager
def _server(threads: int) -> Generator[None]:
    """Let stages have a Redis with so many threads."""
    with tempfile.TemporaryDirectory(prefix="cluster-serving-bench-") as name:
        script = Path(name, "src", "redis-server")
        script.parent.mkdir()
        more = f"--io-threads {threads} --io-threads-do-reads yes" if threads > 1 else ""
        script.write_text(f'#!/bin/sh\nexec {find_server(os.environ).path} "$@" {more}\n')
        script.chmod(0o755)
        before = os.environ.get("REDIS_HOME")
        os.environ["REDIS_HOME"] = name
        try:
            yield
        finally:
            del os.environ["REDIS_HOME"]
            if before is not None:
                os.environ["REDIS_HOME"] = before


if __name__ == "__main__":
    main()
