# mypy: disable-error-code="import-not-found,misc,untyped-decorator"
# pyright: basic
# pyright: reportMissingImports=false
# BentoML is installed in an environment of its own only.
"""BentoML: base64 in JSON in and out, as its batched methods take it; no access log; how long a batch waits it finds by itself.

`bentoml serve` imports this file in each of its processes.
"""

import base64
import os
import sys

import bentoml

from bench.peers.image import Model, read_task

_TASK = read_task()
_LONGEST_MS = 60_000  # it refuses what it expects to take longer
_BATCHES = {"batchable": True, "max_batch_size": _TASK.batch, "max_latency_ms": _LONGEST_MS}


@bentoml.service(
    workers=_TASK.processes, traffic={"timeout": _LONGEST_MS / 1000}, logging={"access": {"enabled": False}}
)
class Images:
    """The model as BentoML's documentation has one."""

    def __init__(self) -> None:
        self._model = Model(_TASK.model, _TASK.threads)

    @bentoml.api(**_BATCHES if _TASK.batch > 1 else {})
    def predict(self, images: list[str]) -> list[str]:
        """Run a batch, or one request."""
        logits = self._model.run([base64.b64decode(image) for image in images])
        return [base64.b64encode(row.tobytes()).decode() for row in logits]


if __name__ == "__main__":
    serve = ["-m", "bentoml", "serve", "bench.peers.image_bentoml:Images"]
    os.execv(sys.executable, [sys.executable, *serve, "--host=127.0.0.1", f"--port={_TASK.port}"])  # noqa: S606
