"""Other model servers beside ours in `bench.http`: each with the same model, in an environment of its own."""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.http_servers import ROW, Server, process
from bench.peers.environments import ENVIRONMENTS, Environment

_BATCH = 64


@dataclass(frozen=True)
class Peer:
    """One of them.

    Attributes:
        installed: its environment, and what it is called in tables.
        path: as of a `Server`.
        request: the JSON that is POSTed.
        numbers: the ten floats of its answer's JSON.
        settings: for its process, in its environment; `{port}` is replaced.
    """

    installed: Environment
    path: str
    request: Mapping[str, Any]
    numbers: Callable[[Any], list[float]]
    settings: Mapping[str, str] = field(default_factory=dict[str, str])

    def servers(self) -> list[Server]:
        """It with batches and without: which is faster depends on the connections."""
        name = self.installed.name
        return [self._server(name, _BATCH), self._server(f"{name}, no batches", 1)]

    def _server(self, name: str, batch: int) -> Server:
        body = json.dumps(self.request).encode()
        return Server(
            name, self.path, body, lambda answer: self.numbers(json.loads(answer)), partial(self._running, batch)
        )

    def _running(self, batch: int, port: int) -> AbstractContextManager[None]:
        environment = {name: value.format(port=port) for name, value in self.settings.items()}
        program = f"bench.peers.serve_{self.installed.name}"
        return process([str(self.installed.python), "-m", program, str(port), str(batch)], environment)


_X = {"x": ROW.tolist()}
_V2 = {"inputs": [{"name": "x", "shape": [1, 128], "datatype": "FP32", "data": ROW.tolist()}]}

# It logs a warning for each request that wrk leaves unread at the end of a turn.
MOSEC = {"MOSEC_PORT": "{port}", "MOSEC_ADDRESS": "127.0.0.1", "MOSEC_LOG_LEVEL": "error"}
RAY = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_USAGE_STATS_ENABLED": "0"}

PEERS = (
    Peer(ENVIRONMENTS["mosec"], "/inference", _X, lambda answer: answer["y"], MOSEC),
    Peer(ENVIRONMENTS["litserve"], "/predict", _X, lambda answer: answer["y"]),
    Peer(ENVIRONMENTS["ray"], "/", _X, lambda answer: answer["y"], RAY),
    Peer(ENVIRONMENTS["mlserver"], "/v2/models/mlp/infer", _V2, lambda answer: answer["outputs"][0]["data"]),
)
