"""A stage for a measurement: a Redis of its own, nodes and a frontend on it, started and stopped as a user does."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import redis
import yaml

from cluster_serving.client import keys
from cluster_serving.node.job import redis_server

_MEMORY_BYTES = 8 << 30
_PATIENCE_S = 60.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Stage:
    """Folder and Redis of one measurement; its nodes get `environment` beside the variables of this process."""

    directory: Path
    port: int
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @contextmanager
    def node(self, job: str, **config: Any) -> Generator[None]:
        """A node that serves while the block lasts; what is None in `config` is left unset."""
        path = self.directory / f"{job}.yaml"
        settings = {name: value for name, value in config.items() if value is not None}
        path.write_text(yaml.safe_dump({"jobName": job, "redisUrl": f"127.0.0.1:{self.port}", **settings}))
        self.command("start", "-c", str(path))
        try:
            yield
        finally:
            self.command("stop", job)

    def heartbeat(self, job: str) -> dict[str, Any]:
        """Return the heartbeat of the one node of a job, decoded."""
        told: dict[str, Any] = json.loads(self.beat(job))
        return told

    def beat(self, job: str) -> bytes:
        """Return the heartbeat of the one node of a job as Redis keeps it, in JSON."""
        with redis.Redis(port=self.port) as client:
            (key,) = client.scan_iter(keys.node_key(job, "*"))
            beat: Any = client.get(key)
        return bytes(beat)

    @contextmanager
    def frontend(self, job: str, port: int) -> Generator[psutil.Process]:
        """A frontend with one worker that serves on this port while the block lasts."""
        command = [sys.executable, "-P", "-m", "cluster_serving.frontend", "--interface=127.0.0.1", f"--port={port}"]
        command += ["--redisHost=127.0.0.1", f"--redisPort={self.port}", f"--redisInputQueue={job}"]
        with (self.directory / "frontend.log").open("wb") as log:
            process = psutil.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            try:
                self._await(f"http://127.0.0.1:{port}/v2/health/ready")
                yield process
            finally:
                everybody = [process, *process.children(recursive=True)]
                process.terminate()
                for each in psutil.wait_procs(everybody, 15)[1]:
                    each.kill()

    def command(self, *arguments: str) -> None:
        """Run a command of `cluster-serving` in the stage's home; one that fails ends the measurement."""
        environment = os.environ | {"CLUSTER_SERVING_HOME": str(self.directory / "state")} | dict(self.environment)
        command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")

    def _await(self, url: str) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline_s:
            try:
                urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - http
            except OSError:
                time.sleep(_POLL_S)
            else:
                return
        raise SystemExit(f"no answer from {url} in {_PATIENCE_S:g} s:\n{(self.directory / 'frontend.log').read_text()}")


@contextmanager
def stage(port: int) -> Generator[Stage]:
    """A stage with an empty Redis on this port, cleared away after SIGTERM too."""
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="cluster-serving-bench-") as name:
        directory = Path(name)
        redis_server.start(directory / "redis", port, _MEMORY_BYTES)
        try:
            yield Stage(directory, port)
        finally:
            redis_server.stop(directory / "redis")


def _leave(*_signal: object) -> None:
    sys.exit("terminated")
