"""The two nodes of a run: real nodes, started with `start --foreground`, on the run's own Redis."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import redis
import yaml
from pydantic import SecretStr

from cluster_serving.client import keys
from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.node.chaos import pace
from cluster_serving.node.chaos.clock import Clock
from cluster_serving.node.config.loading import Config
from cluster_serving.node.job.private_redis import PrivateRedis, spawn
from cluster_serving.node.ring.holders import open_rings
from cluster_serving.node.worker.poison import VARIABLE

_TURN_S = 0.05
_MANY = 1_000_000


def run_config(config: Config, url: str) -> Config:
    """Return the user's configuration, with the pace and the Redis of the run."""
    defaults = Config()
    redis_keys = [name for name in Config.model_fields if name.startswith("redis_") and name != "redis_timeout"]
    update: dict[str, Any] = {name: getattr(defaults, name) for name in redis_keys}
    update |= {
        "redis_url": url,
        "redis_timeout": min(config.redis_timeout, 2000),
        "lease_s": pace.LEASE_S,
        "run_timeout_s": pace.RUN_TIMEOUT_S,
        "drain_timeout_s": pace.DRAIN_S,
        "batch_size": min(config.batch_size or pace.BATCH, pace.BATCH),
        "model_parallelism": min(config.model_parallelism or pace.WORKERS, pace.WORKERS),
        # At the end, a run reads all results and dead letters, as a client and an operator would.
        "result_time_to_live_s": 86_400.0,
        "max_dead_letters": _MANY,
        "max_dead_letter_bytes": 1 << 40,
        # An innocent record must not use up its deliveries by the run's own disturbances.
        "max_deliveries": max(config.max_deliveries, 50),
    }
    return config.model_copy(update=update)


def write_config(config: Config, path: Path) -> None:
    """Write a configuration, with its secrets, to a file that only its owner can read."""
    dumped = config.model_dump(by_alias=True, exclude_defaults=True)
    values = {key: value.get_secret_value() if isinstance(value, SecretStr) else value for key, value in dumped.items()}
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    if config.image_resize:
        values |= {"imageResize": ",".join(map(str, config.image_resize)), "imageResizeOrder": "hw"}
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(values), encoding="utf-8")


class Node:
    """Node of a run, with its own home directory."""

    def __init__(
        self, number: int, directory: Path, config: Path, job: str, server: PrivateRedis, poison: Path
    ) -> None:
        self.number = number
        self.log_path = directory / f"node-{number + 1}.log"
        self.rings: set[int] = set()
        self.endings: list[str] = []
        self._home = directory / f"node-{number + 1}"
        self._config = config
        self._job = job
        self._redis = server
        self.clock = Clock(directory / f"clock-{number + 1}")
        self._environment = self.clock.environment(node_environment(os.environ, self._home, poison))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the node, without waiting until it is ready."""
        command = [
            sys.executable,
            "-P",
            "-m",
            "cluster_serving.node.cli",
            "start",
            "--foreground",
            "-c",
            str(self._config),
        ]
        self._process = spawn(command, self.log_path, self._environment)

    @property
    def runs(self) -> bool:
        """True if the node has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def beat(self) -> Heartbeat | None:
        """Return the node's heartbeat in Redis."""
        if self._process is None:
            return None
        with suppress(redis.RedisError, OSError, msgspec.MsgspecError), self._redis.settings(1.0).client() as client:
            for key in client.scan_iter(keys.node_key(self._job, "*")):
                text: Any = client.get(key)
                if text and (beat := Heartbeat.decode(text)).pid == self._process.pid:
                    return beat
        return None

    @property
    def whole(self) -> bool:
        """True if the node is ready and all its workers are alive."""
        beat = self.beat()
        return beat is not None and beat.whole

    def await_ready(self, timeout_s: float = pace.READY_S) -> Heartbeat:
        """Wait until the node is ready, and return its heartbeat.

        Raises:
            NodeEnded: the node ended, or was not ready in time. The message quotes the last error line of the node's log, or its
                last line when there is no error.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            beat = self.beat()
            if beat is not None and beat.ready:
                self.rings.update(open_rings(beat.pid))
                return beat
            code = self._process.poll() if self._process else None
            if code is not None or time.monotonic() > deadline_s:
                why = "is not ready in time" if code is None else f"ended by itself with exit code {code}"
                lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
                errors = [line for line in lines if "level=error" in line]
                said = (errors or lines or ["nothing"])[-1]
                raise NodeEnded(f"node {self.number + 1} {why}; its log says: {said}")
            time.sleep(_TURN_S)

    def children(self, kind: str) -> list[psutil.Process]:
        """Return the node's reader, writer or workers, oldest first."""
        if self._process is None:
            return []
        children: list[psutil.Process] = []
        with suppress(psutil.Error):
            children = psutil.Process(self._process.pid).children()
        found: list[psutil.Process] = []
        for child in children:
            with suppress(psutil.Error):  # a child that has just ended has no arguments
                arguments = child.cmdline()
                if "cluster_serving.node.supervisor.child" in arguments and arguments[-1] == kind:
                    found.append(child)
        return sorted(found, key=lambda child: child.pid)

    def everybody(self) -> list[psutil.Process]:
        """Return the node's supervisor and all children."""
        with suppress(psutil.Error):
            if self._process is not None:
                supervisor = psutil.Process(self._process.pid)
                return [supervisor, *supervisor.children(recursive=True)]
        return []

    def end(self, number: int, timeout_s: float = pace.DRAIN_S + 20) -> None:
        """End the node with a signal, and note a wrong ending."""
        if self._process is None:
            return
        if self._process.poll() is not None:
            self.endings.append(f"node {self.number + 1} ended by itself with exit code {self._process.returncode}")
            return
        self._process.send_signal(number)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self.endings.append(f"node {self.number + 1} did not end within {timeout_s:.0f} s of SIGTERM")
            return
        if number == signal.SIGTERM and code:
            self.endings.append(f"node {self.number + 1} ended with exit code {code} after SIGTERM")


class NodeEnded(Fault):
    """A node of the run does not serve."""

    exit_code = ExitCode.FAILED


def node_environment(environ: Mapping[str, str], home: Path, poison: Path) -> dict[str, str]:
    """Return the environment of a node, without the user's settings. The node's file holds the whole configuration."""
    kept = {name: value for name, value in environ.items() if not name.startswith(ENVIRON_PREFIX)}
    return kept | {"CLUSTER_SERVING_HOME": str(home), VARIABLE: str(poison)}


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition, and return whether it came true in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_TURN_S)
    return True
