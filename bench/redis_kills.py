"""The embedded Redis killed under load: one node, its own Redis, and every few seconds SIGKILL for that Redis.

Programs enqueue records and query their results. Where Redis leaves in the middle of a call, so that a record may have been taken
or not, they enqueue it again under the same uri, as `ConnectionLost` says. The node's supervisor starts Redis again. A record is
lost when its result never comes. The gap of a kill is the longest time without an answer from its signal on.
Run it by `python -m bench.redis_kills [--kills N] [--every S] [--seed N] [--json FILE]`; it exits with 1 unless every record has
its own right answer and nothing is left in Redis.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import redis

from bench import poison_model, report
from cluster_serving.client import ConnectionLost, InputQueue, OutputQueue, keys
from cluster_serving.node.job import redis_server

JOB = "bench_redis_kills"
_PORT = 26387
_PROGRAMS = 3
_AT_ONCE = 200
_PATIENCE_S = 60.0
_ALL_WELL = ("lost", "wrong", "in_stream", "pending", "dead_letters")


class Program(threading.Thread):
    """Enqueues records and queries their results, again and again."""

    def __init__(self, first: int) -> None:
        super().__init__(daemon=True)
        self.answered_s: list[float] = []
        self.asked = self.again = self.wrong = 0
        self._first = first
        self._stop_asking = threading.Event()

    def run(self) -> None:
        """Ask until `stop`."""
        with (
            InputQueue(port=_PORT, name=JOB, patience_s=_PATIENCE_S) as queue,
            OutputQueue(port=_PORT, name=JOB) as output,
        ):
            while not self._stop_asking.is_set():
                numbers = range(self._first + self.asked, self._first + self.asked + _AT_ONCE)
                self.asked += _AT_ONCE
                self._enqueue(queue, numbers)
                self._query(output, numbers)

    def stop(self) -> None:
        """Let it finish what it has asked."""
        self._stop_asking.set()

    def _enqueue(self, queue: InputQueue, numbers: range) -> None:
        while numbers:
            try:
                queue.enqueue_many((str(number), {"x": np.array([number, 0], np.float32)}) for number in numbers)
            except ConnectionLost as error:
                numbers = numbers[error.accepted :]
                self.again += 1
            else:
                return

    def _query(self, output: OutputQueue, numbers: range) -> None:
        waited_for = list(numbers)
        while waited_for:
            late: list[int] = []
            for number in waited_for:
                answer = self._answer(output, number)
                if isinstance(answer, str):  # "[]": not there yet
                    late.append(number)
                else:
                    self.answered_s.append(time.monotonic())
                    self.wrong += float(np.asarray(answer).flat[0]) != 2 * number + 1
            waited_for = late

    def _answer(self, output: OutputQueue, number: int) -> Any:
        try:
            return output.query(str(number))
        except ConnectionLost:
            return ""


def main() -> None:
    """Load, kill, print the table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--every", type=float, default=3, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    with node() as directory:
        figures = measure(directory, options)
    report.show_once("The embedded Redis, killed under load", figures, f"{options.kills} kills, seed {options.seed}")
    report.write(options.json, [figures])
    if found := [
        f"{name}: {figures[f'redis_kills.{name}']:.0f}" for name in _ALL_WELL if figures[f"redis_kills.{name}"]
    ]:
        sys.exit(", ".join(found))


@contextmanager
def node() -> Generator[Path]:
    """A node in the background for a block, and the Redis that its `start` starts; the directory of that Redis."""
    with tempfile.TemporaryDirectory(prefix="cluster-serving-bench-") as name:
        home = Path(name)
        model = home / "model" / "model.py"
        model.parent.mkdir()
        shutil.copy(poison_model.__file__, model)
        options = [f"--model-path={model}", f"--job-name={JOB}", f"--redis-url=localhost:{_PORT}"]
        try:
            _command(home, "start", *options, "--set", "modelParallelism=1", "--set", "threadPerModel=1")
            yield home / "state" / JOB / "redis"
        finally:
            _command(home, "shutdown", JOB)


def _command(home: Path, *words: str) -> None:
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(home / "state")}
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def measure(directory: Path, options: argparse.Namespace) -> report.Figures:
    """Load and kill, wait for the answers, and say what came of it."""
    programs = [Program(number * 1_000_000 + 1) for number in range(_PROGRAMS)]
    for program in programs:
        program.start()
    kills_s = kill(directory, options)
    for program in programs:
        program.stop()
    deadline_s = time.monotonic() + _PATIENCE_S
    for program in programs:
        program.join(max(0.0, deadline_s - time.monotonic()))
    answers_s = np.sort(np.concatenate([program.answered_s for program in programs]))
    # Answers that were on their way when the signal was sent come within milliseconds.
    gaps_s = [
        float(np.diff(answers_s[np.searchsorted(answers_s, kill_s) - 1 :][:_AT_ONCE]).max()) for kill_s in kills_s
    ]
    with redis.Redis(port=_PORT) as client:
        left = {
            "in_stream": client.xlen(JOB),
            "pending": client.xpending(JOB, keys.GROUP)["pending"],
            "dead_letters": client.xlen(keys.dead_key(JOB)),
        }
    figures = {
        "kills": len(kills_s),
        "records": sum(program.asked for program in programs),
        "lost": sum(program.asked - len(program.answered_s) for program in programs),
        "wrong": sum(program.wrong for program in programs),
        "calls_broken_off": sum(program.again for program in programs),
        **left,
        "gap_median_s": float(np.median(gaps_s)),
        "gap_longest_s": max(gaps_s),
    }
    return {f"redis_kills.{name}": float(value) for name, value in figures.items()}


def kill(directory: Path, options: argparse.Namespace) -> list[float]:
    """Kill the Redis so many times, whenever it is there; when that was, by the monotonic clock."""
    random = Random(options.seed)
    kills_s: list[float] = []
    while len(kills_s) < options.kills:
        time.sleep(random.uniform(0.5, 1.5) * options.every)
        pid = redis_server.owned(directory)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            kills_s.append(time.monotonic())
    time.sleep(options.every)
    return kills_s


if __name__ == "__main__":
    main()
