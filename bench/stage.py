"""A stage for a measurement: a Redis of its own, and a node of a job on it, started and stopped as a user does."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster_serving.node import redis_server

_MEMORY_BYTES = 8 << 30


@dataclass(frozen=True)
class Stage:
    """Where a measurement plays."""

    directory: Path
    port: int

    @contextmanager
    def node(self, job: str, **config: Any) -> Generator[None]:
        """A node that serves while the block lasts."""
        path = self.directory / f"{job}.yaml"
        path.write_text(yaml.safe_dump({"jobName": job, "redisUrl": f"127.0.0.1:{self.port}", **config}))
        self._command("start", "-c", str(path))
        try:
            yield
        finally:
            self._command("stop", job)

    def _command(self, *arguments: str) -> None:
        environment = os.environ | {"CLUSTER_SERVING_HOME": str(self.directory / "state")}
        command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def stage(port: int) -> Generator[Stage]:
    """A stage with an empty Redis on this port."""
    with tempfile.TemporaryDirectory(prefix="cluster-serving-bench-") as name:
        directory = Path(name)
        redis_server.start(directory / "redis", port, _MEMORY_BYTES)
        try:
            yield Stage(directory, port)
        finally:
            redis_server.stop(directory / "redis")
