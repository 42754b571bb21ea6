# mypy: disable-error-code="import-not-found,misc,untyped-decorator,attr-defined"
# pyright: basic
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# Ray is installed in an environment of its own only.
"""Ray Serve: one replica, no access log; its switches for throughput (HAProxy before it) come from the environment.

Arguments: the port, and the greatest batch; 1: no batches.
"""

import signal
import sys

import numpy as np
import orjson
import ray
from ray import serve
from ray.serve.schema import LoggingConfig
from starlette.requests import Request
from starlette.responses import Response

from bench.http_model import Model

_LOGGING = LoggingConfig(enable_access_log=False, log_level="ERROR")


@serve.deployment(num_replicas=1, max_ongoing_requests=256, logging_config=_LOGGING)
class Mlp:
    """The model as Ray Serve's documentation has one."""

    def __init__(self, batch: int) -> None:
        self._model = Model()
        self._batched = batch > 1
        if self._batched:
            self._run_batched.set_max_batch_size(batch)

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        row = orjson.loads(await request.body())["x"]
        answer = await self._run_batched(row) if self._batched else self._run([row])[0]
        return Response(orjson.dumps({"y": answer}), media_type="application/json")

    @serve.batch(batch_wait_timeout_s=0.001)
    async def _run_batched(self, rows: list[list[float]]) -> list[list[float]]:
        return self._run(rows)

    def _run(self, rows: list[list[float]]) -> list[list[float]]:
        answer: list[list[float]] = self._model.predict({"x": np.asarray(rows, np.float32)})["y"].tolist()
        return answer


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # Ray ends its processes when this one exits
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])}, logging_config=_LOGGING)
    serve.run(Mlp.bind(int(sys.argv[2])), blocking=True)
