"""Interrupts at random instants into every call of every queue: is an answer wrong, does a call hang, does the interpreter die?

A program (`interrupted.py`) calls the queues for threads and for asyncio. A timer's signal handler raises an exception in the
middle, as Ctrl-C does. Another process answers (`doubler.py`), and counts how often each record was enqueued.
Run it by `python -m bench.interrupts [--seconds N] [--calls N] [--seed N] [--port N] [--json FILE]`; it exits with 1 unless every
answer is the right one, every call ends, no call fails but by its interrupt, and no record was enqueued twice.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import redis

from bench import report
from bench.checked_calls import kept
from bench.doubler import SEEN
from bench.stage import stage
from cluster_serving.client import keys

JOB = "bench_interrupts"
_PORT = 26388
_PATIENCE_S = 120.0
_ROOM = 1_000_000


def main() -> None:
    """Interrupt, print the table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--calls", type=int, default=sys.maxsize, help="end after so many calls, too")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, help="port of an empty Redis (default: one of its own)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    with nullcontext() if options.port else stage(_PORT):
        figures, troubles = measure(options.port or _PORT, options)
    report.show_once("Interrupted calls", figures, f"{options.seconds:g} s, seed {options.seed}")
    report.write(options.json, [figures])
    if troubles:
        sys.exit("\n".join(troubles))


def measure(port: int, options: argparse.Namespace) -> tuple[report.Figures, list[str]]:
    """Interrupt for so long; return what was counted, and what went wrong."""
    command = [sys.executable, "-m", "bench.interrupted", str(port), JOB]
    command += map(str, [options.seconds, options.calls, options.seed])
    with answering(port), redis.Redis(port=port) as client:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=options.seconds + _PATIENCE_S
        )
        if done.returncode:
            return {}, [f"the program ended with {done.returncode}:", done.stderr]
        told: dict[str, dict[str, int]] = json.loads(done.stdout)
        enqueued: Mapping[Any, Any] = client.hgetall(SEEN)
    figures = {f"interrupts.{name.replace(' ', '_')}": float(count) for name, count in told["counts"].items()}
    figures["interrupts.records"] = float(len(enqueued))
    troubles = [f"{count} x {trouble}" for trouble, count in told["troubles"].items()]
    return figures, troubles + [
        f"enqueued {int(times)} times: {name!r}" for name, times in enqueued.items() if int(times) > 1
    ]


@contextmanager
def answering(port: int) -> Generator[None]:
    """Answer the records for a block."""
    jobs = JOB, kept(JOB)
    with redis.Redis(port=port) as client:
        for job in jobs:  # as a node does, so that a call waits for its answer
            client.hset(keys.limits_key(job), "maxQueueLength", _ROOM)
    process = subprocess.Popen([sys.executable, "-m", "bench.doubler", str(port), *jobs])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
