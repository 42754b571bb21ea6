"""Answers to a client while nodes die: two nodes on one stream, and every few seconds one of them is killed and started again.

Numbered records, 1024 of them under way, in the client's own transactions; the model of `poison_model.py`, one worker a
node, batch 64, 40 ms a run, so that both nodes are full of records whenever they serve; `lease` 2 s. The victim is drawn from a
seed and gets SIGKILL at its supervisor, ready again or not. All answers go to one reply stream, which is read raw and whole: a
second answer would be a second entry. When all answers are there, the stream is read for two more leases, and then nothing may be
left in Redis.
Run it by `python -m bench.kills [--seconds N] [--every N] [--seed N] [--json FILE]`; it exits with 1 unless every record has
exactly one answer, the right one, and nothing is left pending, in the stream, or as a dead letter.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import redis
import yaml

from bench import poison_model, report
from bench.stage import Stage, stage
from cluster_serving.client import keys
from cluster_serving.client.protocol.admission import CHUNK, Records
from cluster_serving.client.protocol.reply_stream import ReplyStream
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.admission import enqueue
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.values import encode_record

JOB = "bench_kills"
_PORT = 26386
_LEASE_S = 2
_SETTINGS = {"batchSize": 64, "modelParallelism": 1, "threadPerModel": 1, "lease": _LEASE_S}
_WINDOW = 1024
_TURN_MS = 10
_PATIENCE_S = 60.0
_ALL_WELL = ("not_answered", "answered_twice", "wrong", "pending", "in_stream", "dead_letters")


class Node:
    """A node in the foreground, with a home of its own."""

    def __init__(self, home: Path, model: Path) -> None:
        home.mkdir()
        self._home = home
        self._config = home / "config.yaml"
        config = {"jobName": JOB, "redisUrl": f"127.0.0.1:{_PORT}", "modelPath": str(model), **_SETTINGS}
        self._config.write_text(yaml.safe_dump(config))
        self.start()

    def start(self) -> None:
        """Start it; it is ready later."""
        command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "start", "--foreground"]
        environment = os.environ | {"CLUSTER_SERVING_HOME": str(self._home / "state")}
        with (self._home / "node.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "-c", str(self._config)], stdout=log, stderr=log, env=environment
            )

    def end(self, number: int) -> None:
        """Send it a signal, and wait until it has ended."""
        self._process.send_signal(number)
        self._process.wait(_PATIENCE_S)

    def check(self) -> None:
        """See that it has not ended by itself.

        Raises:
            SystemExit: it has.
        """
        if self._process.poll() is not None:
            lines = (self._home / "node.log").read_text().splitlines()
            raise SystemExit(f"a node ended with exit code {self._process.returncode}: {' '.join(lines[-1:])}")


class Load:
    """Sends numbered records, and takes whatever comes to the reply stream; all times are monotonic seconds."""

    def __init__(self) -> None:
        self.sent_s: list[float] = []
        self.waited_s: list[float] = []
        self.answers: Counter[int] = Counter()
        self.wrong = 0
        self._link = Link(RedisSettings("127.0.0.1", _PORT))
        self._stream = ReplyStream(keys.reply_key(JOB, "bench"))
        self._stream.made(self._link.exchange(*self._stream.make()), time.monotonic())

    @property
    def under_way(self) -> int:
        """Number of sent records that have no answer yet."""
        return len(self.sent_s) - len(self.answers)

    def send(self, count: int) -> None:
        """Enqueue so many more."""
        first = len(self.sent_s) + 1  # from 1: a warm-up has zeros
        records = [
            encode_record(str(number), {"x": np.array([number, 0], np.float32)})
            for number in range(first, first + count)
        ]
        now_s = time.monotonic()
        taken = enqueue(self._link, JOB, Records(records, self._stream.reply))
        if len(taken) < count:
            raise SystemExit(f"Redis has taken {len(taken)} of {count} records")
        self.sent_s += [now_s] * count

    def receive(self) -> None:
        """Take what comes within a turn."""
        replies = self._link.exchange(*self._stream.read(time.monotonic(), _TURN_MS / 1000))
        for result in self._stream.results(replies):
            number = int(result.uri)
            self.answers[number] += 1
            self.waited_s.append(time.monotonic() - self.sent_s[number - 1])
            self.wrong += result.error is not None or result.outputs["y"] != 2 * number + 1


class Beats:
    """Counts of the nodes, from their heartbeats: the counts of a node's last two seconds are lost with the node."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._last: dict[int, dict[str, Any]] = {}

    def look(self) -> int:
        """Remember the heartbeats of now; how many nodes are ready."""
        found = self._client.mget([*self._client.scan_iter(keys.node_key(JOB, "*"))] or [JOB])
        beats = [json.loads(text) for text in found if text]
        self._last |= {beat["pid"]: beat for beat in beats}
        return sum(beat["state"] == "ready" for beat in beats)

    def total(self, name: str) -> float:
        """Of all nodes that there were."""
        return float(sum(beat[name] for beat in self._last.values()))


def main() -> None:
    """Send and kill, print the table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--every", type=float, default=5, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    with stage(_PORT) as place, redis.Redis(port=_PORT) as client:
        model = place.directory / "model" / "model.py"
        model.parent.mkdir()
        shutil.copy(poison_model.__file__, model)
        with two_nodes(place, model) as nodes:
            figures = measure(nodes, client, options)
        times = Counter(number for runs in poison_model.noted(model.parent) for run in runs for number in run.numbers)
        figures["kills.run_again"] = float(sum(count > 1 for number, count in times.items() if number))
    report.show_once("Two nodes, killed in turn", figures, f"a kill every {options.every:g} s, seed {options.seed}")
    report.write(options.json, [figures])
    if problem := complaint(figures):
        sys.exit(problem)


@contextmanager
def two_nodes(place: Stage, model: Path) -> Generator[list[Node]]:
    """Two nodes for a block."""
    nodes: list[Node] = []
    try:
        for name in ("a", "b"):
            nodes.append(Node(place.directory / name, model))
        yield nodes
    finally:
        for node in nodes:
            node.end(signal.SIGTERM)


def measure(nodes: Sequence[Node], client: Any, options: argparse.Namespace) -> report.Figures:
    """Send and kill for so long, wait for the answers, and say what came of it."""
    load, beats = Load(), Beats(client)
    deadline_s = time.monotonic() + _PATIENCE_S
    while beats.look() < len(nodes):
        wait_a_turn(nodes, deadline_s)
    begun_s = time.monotonic()
    kills = send_and_kill(nodes, load, beats, options)
    deadline_s = time.monotonic() + _PATIENCE_S
    while load.under_way and time.monotonic() < deadline_s:
        load.receive()
    seconds = time.monotonic() - begun_s
    until_s = time.monotonic() + 2 * _LEASE_S
    while time.monotonic() < until_s:
        load.receive()
    beats.look()
    waited_s = np.array(load.waited_s)
    return {
        "kills.records": float(len(load.sent_s)),
        "kills.kills": float(kills),
        "kills.not_answered": float(load.under_way),
        "kills.answered_twice": float(sum(count > 1 for count in load.answers.values())),
        "kills.wrong": float(load.wrong),
        "kills.pending": float(client.xpending(JOB, keys.GROUP)["pending"]),
        "kills.in_stream": float(client.xlen(JOB)),
        "kills.dead_letters": float(client.xlen(keys.dead_key(JOB))),
        "kills.redelivered": beats.total("redelivered"),
        "kills.fenced": beats.total("repeated"),
        "kills.records_per_s": len(load.answers) / seconds,
        "kills.p50_s": float(np.quantile(waited_s, 0.5)),
        "kills.p99_s": float(np.quantile(waited_s, 0.99)),
        "kills.longest_s": float(waited_s.max()),
    }


def send_and_kill(nodes: Sequence[Node], load: Load, beats: Beats, options: argparse.Namespace) -> int:
    """Keep records under way, and kill when it is time; how many kills there were."""
    random = Random(options.seed)
    kills = 0
    begun_s = looked_s = time.monotonic()
    while (passed_s := time.monotonic() - begun_s) < options.seconds:
        if passed_s > (kills + 1) * options.every:
            victim = random.choice(nodes)
            victim.end(signal.SIGKILL)
            victim.start()
            kills += 1
        while load.under_way < _WINDOW:
            load.send(min(CHUNK, _WINDOW - load.under_way))
        load.receive()
        if time.monotonic() - looked_s > 1:
            looked_s = time.monotonic()
            beats.look()
            for node in nodes:
                node.check()
    return kills


def wait_a_turn(nodes: Sequence[Node], deadline_s: float) -> None:
    """Wait a moment for nodes that start.

    Raises:
        SystemExit: one has ended, or the time is over.
    """
    for node in nodes:
        node.check()
    if time.monotonic() > deadline_s:
        raise SystemExit(f"the nodes are not ready within {_PATIENCE_S:g} s")
    time.sleep(_TURN_MS / 1000)


def complaint(figures: report.Figures) -> str:
    """Return name and value of each figure that should be 0 and is not, as one text; empty when all of them are 0."""
    found = [f"{name}: {figures[f'kills.{name}']:.0f}" for name in _ALL_WELL if figures[f"kills.{name}"]]
    return ", ".join(found)


if __name__ == "__main__":
    main()
