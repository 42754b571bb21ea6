"""Eight bottlenecks for `bench.bottlenecks`: each with a node, the trouble, a load, and the limit that has to be named."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
import redis

from bench import pictures, sleeper
from bench.cpu import of_node
from bench.stage import Stage
from cluster_serving.client import ClusterServingError, InputQueue

JOB = "bottleneck"
_BUSY_REDIS = "for step = 1, tonumber(ARGV[1]) do end return 0"
_STEPS = 3_000_000
_BALLAST_BYTES = 40 << 20
_QUOTA = Path("/sys/fs/cgroup/cpu")
_PERIOD_US, _QUOTA_US = 100_000, 10_000

Record = dict[str, Any]
Trouble = Callable[[Stage], AbstractContextManager[None]]


@dataclass(frozen=True)
class Scene:
    """A bottleneck.

    Attributes:
        name: name for the command line.
        code: code of `limit` that has to be named.
        record: returns record number N.
        callers: callers that work at the same time.
        at_once: records that a caller sends before it waits for all their answers.
        pause_s: seconds between the answers and the next records of a caller.
        trouble: what goes on while the load lasts.
        is_sick: one worker is slow.
        model: source of the model.
        settings: of the node.
    """

    name: str
    code: str
    record: Callable[[int], Record]
    callers: int = 1
    at_once: int = 1
    pause_s: float = 0.0
    trouble: Trouble = lambda _: nullcontext()
    is_sick: bool = False
    model: Path = Path(sleeper.__file__)
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

    @contextmanager
    def node(self, place: Stage) -> Generator[None]:
        """A node of this scene that serves while the block lasts."""
        folder = place.directory / self.name
        folder.mkdir()
        shutil.copy(self.model, folder)
        if self.is_sick:
            (folder / sleeper.SICK).touch()
        defaults = {"modelParallelism": 1, "threadPerModel": 1, "batchSize": 8}
        with place.node(JOB, modelPath=str(folder / self.model.name), **defaults | self.settings):
            yield

    @contextmanager
    def load(self, port: int) -> Generator[None]:
        """Callers that call while the block lasts."""
        over = threading.Event()
        with ThreadPoolExecutor(self.callers) as threads:
            calling = [threads.submit(self._call, port, over) for _ in range(self.callers)]
            try:
                yield
            finally:
                over.set()
        for each in calling:
            each.result()

    def _call(self, port: int, over: threading.Event) -> None:
        records = [self.record(number) for number in range(self.at_once)]
        with InputQueue(port=port, name=JOB, patience_s=0.5) as queue:
            while not over.wait(self.pause_s):
                with suppress(ClusterServingError):
                    list(queue.predict_many(records, timeout=30))


def _row(sleep_s: float, compute_s: float, number: int) -> Record:
    del number
    return {"x": np.array([sleep_s, compute_s], np.float32)}


@cache
def _picture(number: int) -> Record:
    """A JPEG file of 1600 x 1200 pixels with soft shapes."""
    shapes = np.random.default_rng(number).integers(0, 256, (30, 40, 3), np.uint8)
    picture = cv2.resize(shapes, (1600, 1200), interpolation=cv2.INTER_CUBIC)
    return {"image": cv2.imencode(".jpg", picture)[1].tobytes()}


@contextmanager
def _busy_redis(place: Stage) -> Generator[None]:
    """Another program of the same Redis, with commands that take long."""
    over = threading.Event()

    def run() -> None:
        with redis.Redis(port=place.port) as client:
            while not over.is_set():
                client.eval(_BUSY_REDIS, 0, _STEPS)

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(run)
        try:
            yield
        finally:
            over.set()
    running.result()


@contextmanager
def _full_redis(place: Stage) -> Generator[None]:
    """Something else that fills the same Redis."""
    with redis.Redis(port=place.port) as client:
        before = str(client.config_get("maxmemory")["maxmemory"])
        client.setrange("ballast", _BALLAST_BYTES, "x")
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.1))
        try:
            yield
        finally:
            client.config_set("maxmemory", before)
            client.delete("ballast")


@contextmanager
def _quota(place: Stage) -> Generator[None]:
    """A quota of the kernel's for all processes of the node: a tenth of a core. Needs root and version 1 of control groups."""
    group = _QUOTA / f"cluster-serving-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise SystemExit(f"quota needs root and control groups of version 1 ({error}); --only leaves it out") from error
    try:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(_QUOTA_US))
        node = of_node(place, JOB)
        for process in node:
            _move(process, group)
        try:
            yield
        finally:
            for process in node:
                _move(process, _QUOTA)
    finally:
        time.sleep(0.1)  # the kernel counts a moved process for a moment
        group.rmdir()


def _move(process: psutil.Process, group: Path) -> None:
    (group / "cgroup.procs").write_text(str(process.pid))


SCENES = (
    Scene("slow-model", "workers", partial(_row, 0.05, 0), callers=4, at_once=16),
    Scene("slow-redis", "redis", partial(_row, 0.002, 0), callers=4, at_once=16, trouble=_busy_redis),
    Scene(
        "busy-worker",
        "one-worker",
        partial(_row, 0.004, 0),
        callers=5,
        pause_s=0.05,
        is_sick=True,
        settings={"modelParallelism": 2},
    ),
    Scene("slow-client", "callers", partial(_row, 0.002, 0), pause_s=0.03),
    Scene(
        "images", "decode", _picture, callers=2, at_once=24, model=Path(pictures.__file__), settings={"batchSize": 8}
    ),
    Scene("memory", "memory", partial(_row, 0.002, 0), callers=2, trouble=_full_redis),
    Scene("lock-step", "lock-step", partial(_row, 0.005, 0), at_once=32, pause_s=0.03),
    Scene("quota", "quota", partial(_row, 0, 0.01), callers=2, at_once=16, trouble=_quota),
)
