# mypy: disable-error-code="import-not-found,misc"
# pyright: basic
# pyright: reportMissingImports=false
# mosec is installed in an environment of its own only.
"""mosec: raw JPEG in, raw floats out; its port, its log level and its timeout come from the environment."""

from typing import Any

from mosec import Server, Worker

from bench.peers.image import WAIT_MS, Model, read_task


class Images(Worker):
    """The model as mosec's documentation has one."""

    def __init__(self) -> None:
        super().__init__()
        task = read_task()
        self._model = Model(task.model, task.threads)
        self._batched = task.batch > 1

    def deserialize(self, data: bytes) -> bytes:
        """One request: the file."""
        return data

    def forward(self, data: Any) -> Any:
        """Run a batch, or one request."""
        rows = [row.tobytes() for row in self._model.run(data if self._batched else [data])]
        return rows if self._batched else rows[0]

    def serialize(self, data: bytes) -> bytes:
        """One answer: the logits."""
        return data


if __name__ == "__main__":
    task = read_task()
    server = Server()
    server.append_worker(Images, num=task.processes, max_batch_size=task.batch, max_wait_time=WAIT_MS)
    server.run()
