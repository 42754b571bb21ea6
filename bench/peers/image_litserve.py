# mypy: disable-error-code="import-not-found,misc"
# pyright: basic
# pyright: reportMissingImports=false
# LitServe is installed in an environment of its own only.
"""LitServe: base64 in JSON in, raw floats out; one API server, its `fast_queue`, no access log."""

import base64
from typing import Any

import litserve
from starlette.responses import Response

from bench.peers.image import WAIT_MS, Model, read_task


class Images(litserve.LitAPI):
    """The model as LitServe's documentation has one."""

    def setup(self, device: str) -> None:
        """Load it."""
        task = read_task()
        self._model = Model(task.model, task.threads)
        self._batched = task.batch > 1

    def decode_request(self, request: dict[str, str]) -> bytes:
        """The file of one request."""
        return base64.b64decode(request["image"])

    def batch(self, inputs: list[bytes]) -> list[bytes]:
        """The files of a batch."""
        return inputs

    def predict(self, x: Any) -> list[bytes] | bytes:
        """Run a batch, or one file."""
        rows = [row.tobytes() for row in self._model.run(x if self._batched else [x])]
        return rows if self._batched else rows[0]

    def unbatch(self, output: list[bytes]) -> list[bytes]:
        """The logits of each file of a batch."""
        return output

    def encode_response(self, output: bytes) -> Response:
        """One answer."""
        return Response(output, media_type="application/octet-stream")


if __name__ == "__main__":
    task = read_task()
    api = Images(max_batch_size=task.batch, batch_timeout=WAIT_MS / 1000) if task.batch > 1 else Images()
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=task.processes, fast_queue=True)
    server.run("127.0.0.1", task.port, num_api_servers=1, log_level="warning", generate_client_file=False)
