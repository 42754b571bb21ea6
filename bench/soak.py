"""Growth of memory: the tiny MLP of the other measurements, a million records, and the memory of every process.

Client processes send records through one `predict_many` each. A warm-up of 10 % fills caches and pools; from then on the memory of
each process is sampled every 5 %: its heap and other anonymous pages; the ring, once; and Redis' `used_memory`. Not USS: its
file pages come and go as other programs map the same libraries, 3 MB a process.
Run it by `python -m bench.soak [--records N] [--json FILE]`; it exits with 1 when the node has grown by more than 5 %.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import redis
from rich.console import Console
from rich.table import Table

from bench import report
from bench.mlp import save_mlp
from bench.stage import stage
from cluster_serving.client import InputQueue, keys
from cluster_serving.node.load.machine import machine

JOB = "bench_soak"
_PORT = 26383
_BATCH = 64
_MARKS = range(10, 100, 5)  # percent of the records answered; what comes before the first one is the warm-up
_LARGEST_GROWTH = 0.05
_POLL_S = 0.005
_PATIENCE_S = 60.0
_MB = 1 << 20
_REDIS = "Redis used_memory"

Sample = dict[str, int]
"""Bytes by the name of a process."""


def main() -> None:
    """Send the records, print the table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=2, help="client processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    with stage(_PORT) as place:
        model = place.directory / "mlp"
        save_mlp(model)
        with place.node(JOB, modelPath=str(model), batchSize=_BATCH, modelParallelism=1, threadPerModel=1):
            samples, seconds = soak(options.records, options.clients)
    node = [sum(_of_node(sample).values()) for sample in samples]
    figures = {
        "soak.records_per_s": options.records / seconds,
        "soak.node_growth_mb": (node[-1] - node[0]) / _MB,
        "soak.redis_growth_mb": (samples[-1][_REDIS] - samples[0][_REDIS]) / _MB,
    }
    show(samples, f"{options.records:,} records, {figures['soak.records_per_s']:,.0f} a second; {machine()}")
    report.write(options.json, [figures])
    if node[-1] > node[0] * (1 + _LARGEST_GROWTH):
        sys.exit(f"the node has grown by more than {_LARGEST_GROWTH:.0%} after the warm-up")


def soak(records: int, clients: int) -> tuple[list[Sample], float]:
    """Send records; samples, the first one after the warm-up, and seconds from the first record to the last answer."""
    context = get_context("spawn")
    done = [context.Value("q", lock=False) for _ in range(clients)]
    shares = [records // clients + (number < records % clients) for number in range(clients)]
    together = context.Barrier(clients + 1)
    senders = [
        context.Process(target=send, args=(share, counter, together), daemon=True)
        for share, counter in zip(shares, done, strict=True)
    ]
    for sender in senders:
        sender.start()
    together.wait(_PATIENCE_S)
    begun_s = time.perf_counter()
    watched = dict(_watched(senders))
    samples: list[Sample] = []

    def wait_for(percent: int) -> None:
        while 100 * sum(counter.value for counter in done) < percent * records:
            if any(sender.exitcode for sender in senders):
                raise SystemExit("a client has failed")
            time.sleep(_POLL_S)

    with redis.Redis(port=_PORT) as client:
        for mark in _MARKS:
            wait_for(mark)
            samples.append(sample(watched, client))
    wait_for(100)
    seconds = time.perf_counter() - begun_s
    together.wait(_PATIENCE_S)
    for sender in senders:
        sender.join()
    return samples, seconds


def send(records: int, done: Any, together: Any) -> None:
    """Be a client: begin with the others, send so many records, count the answers, and leave when nobody measures any more."""
    row = np.ones(128, np.float32)
    with InputQueue(port=_PORT, name=JOB) as queue:
        queue.predict({"x": row})
        together.wait()
        for answer in queue.predict_many(repeat({"x": row}, records)):
            assert np.asarray(answer).shape == (10,)
            done.value += 1
        together.wait()


def sample(watched: dict[psutil.Process, str], client: redis.Redis) -> Sample:
    """Return the bytes of processes, ring and Redis, once Redis is not rewriting its append-only file, 10 MB more for a second."""
    while client.info("persistence")["aof_rewrite_in_progress"]:
        time.sleep(_POLL_S)
    found: Sample = defaultdict(int)
    for process, name in watched.items():
        found[name] += anonymous_bytes(process.pid)
    found["ring"] = ring_bytes(next(process.pid for process, name in watched.items() if name == "supervisor"))
    found[_REDIS] = int(client.info("memory")["used_memory"])
    return dict(found)


def _watched(senders: Sequence[BaseProcess]) -> Iterator[tuple[psutil.Process, str]]:
    """Every process of the node and of the clients, and what it is."""
    with redis.Redis(port=_PORT) as client:
        (key,) = client.scan_iter(keys.node_key(JOB, "*"))
        supervisor = psutil.Process(json.loads(client.get(key) or b"")["pid"])
    yield supervisor, "supervisor"
    for child in supervisor.children():
        yield child, child.cmdline()[-1]
    for sender in senders:
        yield psutil.Process(sender.pid), "clients"


def anonymous_bytes(pid: int) -> int:
    """Return the bytes of a process's memory that no file stands behind, swapped out or not."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("Anonymous:", "Swap:")))


def ring_bytes(supervisor: int) -> int:
    """Return the bytes that the shared memory of the lanes takes: pages that nobody has touched do not count."""
    found = 0
    for path in Path(f"/proc/{supervisor}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed by now
            if "cluster-serving-ring" in str(path.readlink()):
                found += path.stat().st_blocks * 512
    return found


def _of_node(sample: Sample) -> Sample:
    return {name: size for name, size in sample.items() if name not in ("clients", _REDIS)}


def show(samples: list[Sample], caption: str) -> None:
    """Print what each process took after the warm-up and at the end."""
    table = Table(title="Soak: anonymous memory, MB", caption=caption, title_justify="left")
    table.add_column("process")
    for heading in ("after warm-up", "at the end", "most", "growth", "growth %"):
        table.add_column(heading, justify="right")
    rows = {name: [sample[name] for sample in samples] for name in samples[0]}
    rows["node in all"] = [sum(_of_node(sample).values()) for sample in samples]
    for name, sizes in rows.items():
        start, end = sizes[0], sizes[-1]
        numbers = [f"{size / _MB:,.2f}" for size in (start, end, max(sizes), end - start)]
        table.add_row(name, *numbers, f"{end / start - 1:+.1%}", end_section=name in ("ring", _REDIS))
    Console().print(table)


if __name__ == "__main__":
    main()
