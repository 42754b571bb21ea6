"""Stops and restarts of frontend, node and Redis, as HTTP callers notice them: statuses, the longest call, time to recover.

Eight callers that never stop, each request with five seconds to live, against a frontend of one process before a node with the
model of `http_model.py`. Each fault is done three times: Redis, the node and the frontend get SIGTERM or SIGKILL, and are started
again two seconds later. `back_s` is the time from the moment at which the stopped part answers again (PING, a heartbeat that says
ready, a port that takes connections) until a caller has its next 200; 0 where a 200 came before that moment was noticed.
Run it by `python -m bench.http_faults [--json FILE]`; it exits with 1 when a call took longer than twice its time, when one was
answered with anything but 200, 503 and 504, or when a recovery took more than 2 s.
"""

import argparse
import contextlib
import http.client
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import redis
import yaml

from bench import http_model, report
from bench.http_servers import ROW
from cluster_serving.client import keys
from cluster_serving.node.job.redis_program import find_server

JOB = "bench_http_faults"
_CALLERS = 8
_LIFE_S = 5
_STATUSES = (200, 503, 504)
_AWAY_S = 2.0
_STEADY_S = 2.0
_TIMES = 3
_PATIENCE_S = 60.0
_LONGEST_S = 2.0
_BODY = json.dumps({"instances": [{"x": ROW.tolist()}]})


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


PORT, REDIS_PORT = _free_port(), _free_port()


class Callers:
    """Threads that call, and their answers; `good_s`: moment of the first 200 after `watch`, on the monotonic clock."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.longest_s = 0.0
        self.good_s = math.inf
        self._stopping = False
        self._threads = [threading.Thread(target=self._call) for _ in range(_CALLERS)]
        for thread in self._threads:
            thread.start()

    def watch(self) -> None:
        """Forget the successes so far."""
        self.good_s = math.inf

    def stop(self) -> None:
        """Let every caller end its call."""
        self._stopping = True
        for thread in self._threads:
            thread.join()

    def _call(self) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", PORT, timeout=4 * _LIFE_S)) as connection:
            while not self._stopping:
                begun_s = time.monotonic()
                answer = self._answer(connection)
                now_s = time.monotonic()
                self.longest_s = max(self.longest_s, now_s - begun_s)
                self.answers[answer] += 1
                if answer == "200":
                    self.good_s = min(self.good_s, now_s)
                else:
                    connection.close()
                    time.sleep(0.01)

    def _answer(self, connection: http.client.HTTPConnection) -> str:
        try:
            connection.request("POST", "/predict", _BODY, {"X-Request-Timeout": str(_LIFE_S)})
            response = connection.getresponse()
            text = response.read()
        except TimeoutError:
            return "none"
        except (OSError, http.client.HTTPException):
            return "no connection"
        return str(response.status) if response.status in _STATUSES else f"{response.status} {text[:100]!r}"


class Part:
    """A process that is stopped and started."""

    def __init__(self, command: Sequence[str], log: Path, answers: Callable[[int], bool]) -> None:
        self._command = command
        self._log = log
        self._answers = answers
        self.start()

    def start(self) -> float:
        """Start it, and wait until it answers; when that was, on the monotonic clock."""
        with self._log.open("ab") as log:
            environment = os.environ | {"CLUSTER_SERVING_HOME": str(self._log.parent / "state")}
            self._process = subprocess.Popen(list(self._command), stdout=log, stderr=log, env=environment)
        begun_s = time.monotonic()
        while not self._answers(self._process.pid):
            if time.monotonic() - begun_s > _PATIENCE_S or self._process.poll() is not None:
                raise SystemExit(f"{' '.join(self._command)} does not answer:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.005)
        return time.monotonic()

    def send(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal, and wait until it has ended."""
        self.send(number)
        self._process.wait(_PATIENCE_S)


def _redis_answers(_pid: int) -> bool:
    with contextlib.suppress(redis.RedisError), closing(redis.Redis(port=REDIS_PORT)) as client:
        return bool(client.ping())
    return False


def _node_is_ready(pid: int) -> bool:
    with contextlib.suppress(redis.RedisError), closing(redis.Redis(port=REDIS_PORT)) as client:
        for name in client.scan_iter(keys.node_key(JOB, "*")):
            beat: Any = client.get(name)
            told = json.loads(beat or "{}")
            if told.get("pid") == pid and told["state"] == "ready":
                return True
    return False


def _frontend_listens(_pid: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 1):
        return True
    return False


@contextmanager
def servers(home: Path, *redis_options: str, **frontend: Any) -> Generator[dict[str, Part]]:
    """Redis, a node and a frontend for a block, by name.

    Args:
        home: a directory of their own.
        redis_options: more options of Redis.
        frontend: more settings of the frontend.
    """
    config = home / "config.yaml"
    settings = {"modelPath": str(http_model.__file__), "modelParallelism": 1, "threadPerModel": 1, "lease": 2}
    frontend = {"interface": "127.0.0.1", "port": PORT, **frontend}
    config.write_text(
        yaml.safe_dump({"jobName": JOB, "redisUrl": f"127.0.0.1:{REDIS_PORT}", **settings, "frontend": frontend})
    )
    python = [sys.executable, "-P", "-m"]
    server = [str(find_server(os.environ).path), "--port", str(REDIS_PORT), "--dir", str(home), "--appendonly", "yes"]
    node = [*python, "cluster_serving.node.cli", "start", "--foreground", "-c", str(config)]
    parts: dict[str, Part] = {}
    try:
        parts["redis"] = Part([*server, "--save", "", *redis_options], home / "redis.log", _redis_answers)
        parts["node"] = Part(node, home / "node.log", _node_is_ready)
        command = [*python, "cluster_serving.frontend", "-c", str(config)]
        parts["frontend"] = Part(command, home / "frontend.log", _frontend_listens)
        yield parts
    finally:
        for part in reversed(parts.values()):
            part.end()


def _break(part: Part, number: int, callers: Callers) -> float:
    """Stop a part, start it again; seconds from when it answers until a caller succeeds."""
    part.end(number)
    time.sleep(_AWAY_S)
    callers.watch()
    back_s = part.start()
    while callers.good_s == math.inf:
        time.sleep(0.002)
        if time.monotonic() - back_s > _PATIENCE_S:
            raise SystemExit("no call succeeds any more")
    time.sleep(_STEADY_S)
    return max(0.0, callers.good_s - back_s)


def main() -> int:
    """Measure, print, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="cluster-serving-bench-") as home, servers(Path(home)) as parts:
        callers = Callers()
        try:
            time.sleep(_STEADY_S)
            for name, part in parts.items():
                for number in (signal.SIGTERM, signal.SIGKILL):
                    back_s = [_break(part, number, callers) for _ in range(_TIMES)]
                    figures[f"{name}.{number.name}.back_s"] = max(back_s)
        finally:
            callers.stop()
    slowest_s = max(figures.values())
    figures |= {f"answers.{answer}": float(count) for answer, count in sorted(callers.answers.items())}
    figures["longest_call_s"] = callers.longest_s
    report.show_once("faults", figures, f"{_CALLERS} callers, {_TIMES} of each fault; back_s: the slowest")
    report.write(options.json, [figures])
    others = callers.answers.keys() - {*map(str, _STATUSES), "no connection"}
    return int(bool(others) or callers.longest_s > 2 * _LIFE_S or slowest_s > _LONGEST_S)


if __name__ == "__main__":
    sys.exit(main())
