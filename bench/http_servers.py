"""The servers that `bench.http` compares: how each is started, asked and stopped."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench import http_model
from bench.stage import stage

ROOT = Path(__file__).parents[1]
ROW = np.random.default_rng(1).uniform(-1, 1, 128).astype(np.float32).round(6)
_JOB = "bench_http"
REDIS_PORT = 26380
_START_S = 60
_STOP_S = 15


@dataclass(frozen=True)
class Server:
    """A server under test.

    Attributes:
        name: what it is called in tables.
        path: where it takes predictions.
        request: the JSON of one with ROW in it.
        numbers: the ten floats of its answer's JSON; None: it computes nothing.
        running: serves on this port while the block lasts.
    """

    name: str
    path: str
    request: dict[str, Any]
    numbers: Callable[[Any], list[float]] | None
    running: Callable[[int], AbstractContextManager[None]]

    @property
    def body(self) -> bytes:
        """What is POSTed."""
        return json.dumps(self.request).encode()

    def await_ready(self, port: int) -> None:
        """Wait until it answers, and look whether it computes what the model does.

        Raises:
            SystemExit: it does not answer in time, or answers something else.
        """
        deadline_s = time.monotonic() + _START_S
        while (answer := self._answer(port)) is None:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"{self.name} does not answer on port {port}.")
            time.sleep(0.2)
        expected = http_model.Model().predict({"x": ROW[None]})["y"][0]
        if self.numbers and not np.allclose(self.numbers(answer), expected, atol=1e-5):
            raise SystemExit(f"{self.name} computes something else: {answer}")

    def _answer(self, port: int) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{self.path}", self.body, headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - http
                return json.load(response)
        except (urllib.error.URLError, OSError):
            return None


@contextmanager
def process(command: list[str], environment: Mapping[str, str]) -> Generator[None]:
    """A server's process; at the end it and its children are gone. What it says is shown if the block fails."""
    # One thread for numpy: the model is tiny, and a second one would only take a core from the server.
    whole = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment}
    with tempfile.TemporaryFile() as log:
        started = psutil.Popen(command, env=whole, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        except SystemExit:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-4000:])
            raise
        finally:
            _end(started)


def _end(started: psutil.Process) -> None:
    everybody = [started]
    if started.is_running():
        everybody += started.children(recursive=True)
        started.terminate()
    _, remaining = psutil.wait_procs(everybody, _STOP_S)
    for each in remaining:
        each.kill()
    psutil.wait_procs(remaining)


def bare() -> Server:
    """The bare Sanic handler."""
    command = [sys.executable, "-m", "bench.http_bare"]
    return Server("bare", "/predict", _instances(), None, lambda port: process([*command, str(port)], {}))


def ours() -> Server:
    """A frontend with one worker, before a Redis and a node with one worker."""
    return Server("ours", "/predict", _instances(), _our_numbers, _ours_running)


def _instances() -> dict[str, Any]:
    return {"instances": [{"x": ROW.tolist()}]}


def _our_numbers(answer: Any) -> list[float]:
    numbers: list[float] = json.loads(json.loads(answer["predictions"][0])["value"])["data"]
    return numbers


@contextmanager
def _ours_running(port: int) -> Generator[None]:
    model = str(Path(http_model.__file__))
    frontend = [sys.executable, "-P", "-m", "cluster_serving.frontend", "--interface=127.0.0.1", f"--port={port}"]
    frontend += ["--redisHost=127.0.0.1", f"--redisPort={REDIS_PORT}", f"--redisInputQueue={_JOB}"]
    with (
        stage(REDIS_PORT) as place,
        place.node(_JOB, modelPath=model, batchSize=64, modelParallelism=1, threadPerModel=1),
        process(frontend, {}),
    ):
        yield
