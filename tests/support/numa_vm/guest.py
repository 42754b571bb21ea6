"""Program of the machine: it starts nodes that serve a model, one after the other, and observes each.

`python -m support.numa_vm.guest model.onnx directory` writes a file for each case into the directory.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import yaml

from cluster_serving.client import InputQueue, keys
from support.numa_vm.observed import Observed, processes
from support.private_redis import PrivateRedis, private_redis
from support.wait import wait_until

ROWS: Final = 300
VALUES: Final = 1024
_PATIENCE_S: Final = 600.0  # a process takes 10 s to import what it needs, and on a busy host 100
_CLI: Final = (sys.executable, "-P", "-m", "cluster_serving.node.cli")


def main(model: Path, directory: Path) -> None:
    """All cases."""
    places = Path(os.environ["TMPDIR"])
    cases: list[tuple[str, int, Callable[[], AbstractContextManager[None]]]] = [
        ("whole", 4, nullcontext),
        ("without_libnuma", 2, lambda: without_libnuma(places)),
        ("mask", 2, lambda: only((0, 2))),
    ]
    with private_redis(places) as server:
        for name, workers, surroundings in cases:
            with surroundings():
                seen = observe(places / name, server, modelPath=str(model), jobName=name, modelParallelism=workers)
            (directory / f"{name}.json").write_bytes(msgspec.json.encode(seen))


@contextmanager
def without_libnuma(directory: Path) -> Generator[None]:
    """Let processes started in this block find an empty `libnuma.so.1` first."""
    (directory / "libnuma.so.1").touch()
    os.environ["LD_LIBRARY_PATH"] = str(directory)
    yield
    del os.environ["LD_LIBRARY_PATH"]


@contextmanager
def only(cores: Collection[int]) -> Generator[None]:
    """Let processes started in this block use these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    yield
    os.sched_setaffinity(0, before)


def observe(home: Path, server: PrivateRedis, **config: Any) -> Observed:
    """Start a node, have it answer records, and look at it."""
    job = config["jobName"]
    begun_s = time.monotonic()
    with serving(home, redisUrl=server.url, redisTimeout=60_000, threadPerModel=1, batchSize=32, **config) as node:
        ready_s = time.monotonic()
        wrong = sum(asked(job, server.port))
        answered_s = time.monotonic()
        with server.client() as client:
            answered = wait_until(lambda: counted(client, job), "all is counted", _PATIENCE_S)
            unanswered = client.xlen(job) + client.xpending(job, keys.GROUP)["pending"]
        seconds = {"ready": round(ready_s - begun_s, 1), "answered": round(answered_s - ready_s, 1)}
        return Observed(ROWS, wrong, answered, unanswered, processes(node.pid), placement(home, job), seconds)


@contextmanager
def serving(home: Path, **config: Any) -> Generator["subprocess.Popen[bytes]"]:
    """A node for a block; its log is shown when the block fails."""
    home.mkdir()
    config_path, log_path = home / "config.yaml", home / "log"
    config_path.write_text(yaml.safe_dump(config))
    command = [*_CLI, "start", "--foreground", "-c", str(config_path)]
    with log_path.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log, env=environment(home)) as node:
        try:
            wait_until(lambda: serves(log_path) or node.poll() is not None, "the node serves", _PATIENCE_S)
            assert node.poll() is None, f"the node ended with {node.returncode}"
            yield node
        except BaseException:
            print(log_path.read_text())
            raise
        finally:
            node.terminate()
            node.wait(_PATIENCE_S)


def serves(log: Path) -> bool:
    """Return, after a second, whether the log says that the node serves: looking all the time would take half of the processor."""
    time.sleep(1)
    return "event=serving" in log.read_text()


def environment(home: Path) -> dict[str, str]:
    """Of a command that knows the nodes that were started from this home."""
    return os.environ | {"CLUSTER_SERVING_HOME": str(home / "state")}


def asked(job: str, port: int) -> Iterator[bool]:
    """For each row whether its answer is wrong."""
    rows = [np.full(VALUES, number, np.float32) for number in range(ROWS)]
    with InputQueue(port=port, name=job) as queue:
        for row, answer in zip(rows, queue.predict_many(({"x": row} for row in rows), _PATIENCE_S), strict=True):
            yield not np.array_equal(np.asarray(answer), 2 * row)


def counted(client: Any, job: str) -> int:
    """Return the number of records that the node says it has answered; 0 while some of the `ROWS` records are missing."""
    beats = [json.loads(client.get(key) or "{}") for key in client.scan_iter(keys.node_key(job, "*"))]
    answered = sum(beat.get("answered", 0) for beat in beats)
    return answered if answered >= ROWS else 0


def placement(home: Path, job: str) -> str:
    """Return the drawing of `status --placement` for a job."""
    command = [*_CLI, "status", "--placement", job]
    return subprocess.run(command, env=environment(home), capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
