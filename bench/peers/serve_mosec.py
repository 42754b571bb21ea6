# mypy: disable-error-code="import-not-found,misc"
# pyright: basic
# pyright: reportMissingImports=false
# mosec is installed in an environment of its own only.
"""mosec: one worker, orjson instead of its default json; the port and the log level come from the environment.

Argument: the greatest batch; 1: no batches.
"""

import sys
from typing import Any

import numpy as np
import orjson
from mosec import Server, Worker

from bench.http_model import Model


class Unbatched(Worker):
    """The model as mosec's documentation has one; a request at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._model = Model()

    def deserialize(self, data: bytes) -> Any:
        """The 128 floats of one request."""
        return orjson.loads(data)["x"]

    def forward(self, data: list[Any]) -> list[Any]:
        """Run one request."""
        return self._run([data])[0]

    def serialize(self, data: list[float]) -> bytes:
        """The body of one answer."""
        return orjson.dumps({"y": data})

    def _run(self, rows: list[list[float]]) -> list[list[float]]:
        answer: list[list[float]] = self._model.predict({"x": np.asarray(rows, np.float32)})["y"].tolist()
        return answer


class Batched(Unbatched):
    """A batch at a time."""

    def forward(self, data: list[Any]) -> list[Any]:
        """Run a batch."""
        return self._run(data)


if __name__ == "__main__":
    batch = int(sys.argv[2])
    server = Server()
    if batch > 1:
        server.append_worker(Batched, num=1, max_batch_size=batch, max_wait_time=1)  # ms; the shortest that it takes
    else:
        server.append_worker(Unbatched, num=1)
    server.run()
