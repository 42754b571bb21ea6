# mypy: disable-error-code="import-not-found,misc,untyped-decorator,attr-defined"
# pyright: basic
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# Ray is installed in an environment of its own only.
"""Ray Serve: raw JPEG in, raw floats out; no access log; its switches for throughput come from the environment."""

import signal
import sys
from typing import Any

import ray
from ray import serve
from ray.serve.schema import LoggingConfig
from starlette.requests import Request
from starlette.responses import Response

from bench.peers.image import WAIT_MS, Model, Task, read_task

_LOGGING = LoggingConfig(enable_access_log=False, log_level="ERROR")


@serve.deployment(max_ongoing_requests=256, logging_config=_LOGGING)
class Images:
    """The model as Ray Serve's documentation has one."""

    def __init__(self, task: Task) -> None:
        self._model = Model(task.model, task.threads)
        self._batched = task.batch > 1
        if self._batched:
            self._run_batched.set_max_batch_size(task.batch)

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        jpeg = await request.body()
        run_batched: Any = self._run_batched  # Ray takes one, and calls it with many
        logits = await run_batched(jpeg) if self._batched else self._run([jpeg])[0]
        return Response(logits, media_type="application/octet-stream")

    @serve.batch(batch_wait_timeout_s=WAIT_MS / 1000)
    async def _run_batched(self, jpegs: list[bytes]) -> list[bytes]:
        return self._run(jpegs)

    def _run(self, jpegs: list[bytes]) -> list[bytes]:
        return [row.tobytes() for row in self._model.run(jpegs)]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # Ray ends its processes when this one exits
    task = read_task()
    ray.init(num_cpus=task.processes, include_dashboard=False, logging_level="ERROR")
    serve.start(http_options={"host": "127.0.0.1", "port": task.port}, logging_config=_LOGGING)
    serve.run(Images.options(num_replicas=task.processes).bind(task), blocking=True)
