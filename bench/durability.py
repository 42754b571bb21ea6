"""Cost of `durability="majority"` for a program: microseconds of a record, with a master and two replicas on this machine.

Small records are enqueued one by one (`enqueue`) and many (`enqueue_many`), with the setting and without, in turns. A node answers
them. On a network, a trip to a replica is added. `python -m bench.durability [--json FILE]`
"""

import argparse
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from bench import report
from bench.failover_servers import JOB, URL, servers
from cluster_serving.client import InputQueue

_ROW = np.zeros(2, np.float32)


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--records", type=int, default=1000, help="of each load")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="cluster-serving-bench-") as home,
        servers(Path(home)),
        InputQueue(url=URL, name=JOB) as plain,
        InputQueue(url=URL, name=JOB, durability="majority") as durable,
    ):
        for queue in (plain, durable):
            queue.enqueue("first", x=_ROW)
        rounds = [_round(plain, durable, options.records) for _ in range(options.rounds)]
    report.show("Records that most servers have, and records that the master has", rounds)
    report.write(options.json, rounds)


def _round(plain: InputQueue, durable: InputQueue, records: int) -> report.Figures:
    figures: report.Figures = {}
    for name, queue in (("master", plain), ("majority", durable)):
        begun_s = perf_counter()
        for number in range(records):
            queue.enqueue(str(number), x=_ROW)
        one_s = perf_counter()
        queue.enqueue_many((str(number), {"x": _ROW}) for number in range(records))
        figures[f"{name}.one_us"] = 1e6 * (one_s - begun_s) / records
        figures[f"{name}.many_us"] = 1e6 * (perf_counter() - one_s) / records
    for kind in ("one", "many"):
        figures[f"{kind}_ratio"] = figures[f"majority.{kind}_us"] / figures[f"master.{kind}_us"]
    return figures


if __name__ == "__main__":
    main()
