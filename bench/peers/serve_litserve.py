# mypy: disable-error-code="import-not-found,misc"
# pyright: basic
# pyright: reportMissingImports=false
# LitServe is installed in an environment of its own only.
"""LitServe: one API server, one worker, its `fast_queue`, no access log.

Arguments: the port, and the greatest batch; 1: no batches.
"""

import sys
from typing import Any

import litserve
import numpy as np
from numpy.typing import NDArray

from bench.http_model import Model

Array = NDArray[np.float32]


class Mlp(litserve.LitAPI):
    """The model as LitServe's documentation has one."""

    def setup(self, device: str) -> None:
        """Load it."""
        self._model = Model()

    def decode_request(self, request: dict[str, Any]) -> Array:
        """The 128 floats of one request."""
        return np.asarray(request["x"], np.float32)

    def predict(self, x: Array) -> Array:
        """Run a batch, or one row."""
        return self._model.predict({"x": x})["y"]

    def encode_response(self, output: Array) -> dict[str, Any]:
        """The body of one answer."""
        return {"y": output.tolist()}


if __name__ == "__main__":
    port, batch = int(sys.argv[1]), int(sys.argv[2])
    api = Mlp(max_batch_size=batch, batch_timeout=0.001) if batch > 1 else Mlp()
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run("127.0.0.1", port, num_api_servers=1, log_level="warning", generate_client_file=False)
