"""The servers that `bench.http` and `bench.peers` compare: how each is started, asked and stopped."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from bench import http_model
from bench.peers.environments import ROOT
from bench.stage import stage

ROW = np.random.default_rng(1).uniform(-1, 1, 128).astype(np.float32).round(6)
_JOB = "bench_http"
REDIS_PORT = 26380
_START_S = 90
_STOP_S = 5

Numbers = NDArray[np.float32]


def _of_row() -> Numbers:
    """Return the numbers that the numpy model computes for ROW."""
    numbers: Numbers = http_model.Model().predict({"x": ROW[None]})["y"][0]
    return numbers


class Unfit(SystemExit):
    """A server does not answer, fails, or computes something else."""


@dataclass(frozen=True)
class Server:
    """A server under test.

    Attributes:
        name: what it is called in tables.
        path: where it takes predictions.
        body: what is POSTed, with `headers`.
        numbers: the floats in the body of its answer; None: it computes nothing.
        running: serves on this port while the block lasts.
        expected: the floats that it is to answer.
        tolerance: how far each of them may be off, as a share of the largest.
    """

    name: str
    path: str
    body: bytes
    numbers: Callable[[bytes], Any] | None
    running: Callable[[int], AbstractContextManager[None]]
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    expected: Numbers = field(default_factory=_of_row)
    tolerance: float = 1e-3

    def await_ready(self, port: int) -> None:
        """Wait until it answers, and look whether it computes what the model does.

        Raises:
            Unfit: it does not answer in time, or answers something else.
        """
        deadline_s = time.monotonic() + _START_S
        while (answer := self._answer(port)) is None:
            if time.monotonic() > deadline_s:
                raise Unfit(f"{self.name} does not answer on port {port}.")
            time.sleep(0.2)
        if self.numbers and not self._is_right(np.asarray(self.numbers(answer), np.float32)):
            raise Unfit(f"{self.name} computes something else: {answer[:200]!r}")

    def _is_right(self, numbers: Numbers) -> bool:
        near = self.tolerance * float(np.abs(self.expected).max())
        if numbers.shape != self.expected.shape or numbers.argmax() != self.expected.argmax():
            return False
        return np.allclose(numbers, self.expected, rtol=0, atol=near)

    def _answer(self, port: int) -> bytes | None:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{self.path}", self.body, dict(self.headers))
        try:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - http
                body: bytes = response.read()
                return body
        except (urllib.error.URLError, OSError):
            return None


def free_port() -> int:
    """With two more behind it, and below those that the kernel gives to clients: what sends the load may hold any of them.

    Raises:
        SystemExit: there are none.
    """
    for port in range(28_000, 30_000, 3):
        if all(_is_free(each) for each in range(port, port + 3)):
            return port
    raise SystemExit("No three free ports in a row from 28000 on.")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@contextmanager
def process(command: list[str], environment: Mapping[str, str]) -> Generator[None]:
    """A server's process; at the end it and its children are gone. What it says is shown if the block fails."""
    # One thread for numpy: the model is tiny, and a second one would only take a core from the server.
    whole = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment}
    with tempfile.TemporaryFile() as log:
        started = psutil.Popen(command, env=whole, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        except Unfit as error:
            log.seek(0)
            told = log.read().decode(errors="replace")
            sys.stderr.write(told[-4000:])
            raise Unfit(f"{error} Its log ends with: {' '.join(told[-200:].split())}") from error
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


def _instances() -> bytes:
    return json.dumps({"instances": [{"x": ROW.tolist()}]}).encode()


def _our_numbers(answer: bytes) -> list[float]:
    numbers: list[float] = json.loads(json.loads(json.loads(answer)["predictions"][0])["value"])["data"]
    return numbers


@contextmanager
def _ours_running(port: int) -> Generator[None]:
    with our_stack(
        port, REDIS_PORT, _JOB, modelPath=http_model.__file__, batchSize=64, modelParallelism=1, threadPerModel=1
    ):
        yield


@contextmanager
def our_stack(port: int, redis_port: int, job: str, home: Path | None = None, **config: Any) -> Generator[None]:
    """A Redis, a node of this job with this configuration, and a frontend with one worker that listens on `port`.

    The node keeps what it has found out in `home`, for later stacks, or in a directory of its own.
    """
    with stage(redis_port) as bare:
        place = replace(bare, environment={"CLUSTER_SERVING_HOME": str(home)} if home else {})
        with place.node(job, **config), place.frontend(job, port):
            yield
