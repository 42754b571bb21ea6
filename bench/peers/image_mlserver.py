# mypy: disable-error-code="import-not-found,misc"
# pyright: basic
# pyright: reportMissingImports=false
# MLServer is installed in an environment of its own only.
"""MLServer: base64 in JSON in and out, in the Open Inference Protocol: its HTTP has no binary data; no access log.

A single copy of the model runs in the server's own process; more of them run in worker processes.
"""

import asyncio

from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import Base64Codec
from mlserver.types import InferenceRequest, InferenceResponse

from bench.peers.image import WAIT_MS, Model, Task, read_task


class Images(MLModel):
    """The model as MLServer's documentation has one."""

    async def load(self) -> bool:
        """Load it."""
        task = read_task()
        self._model = Model(task.model, task.threads)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Run a batch, or one request."""
        logits = self._model.run(self.decode(payload.inputs[0], default_codec=Base64Codec))
        output = Base64Codec.encode_output("logits", [row.tobytes() for row in logits], use_bytes=False)
        return InferenceResponse(model_name=self.name, outputs=[output])


async def main(task: Task) -> None:
    """Serve until stopped; the two ports after the given one are for gRPC and metrics."""
    settings = Settings(
        debug=False,
        host="127.0.0.1",
        http_port=task.port,
        grpc_port=task.port + 1,
        metrics_port=task.port + 2,
        metrics_dir="build/peers/mlserver/metrics",
        parallel_workers=task.processes if task.processes > 1 else 0,
    )
    batching = {"max_batch_size": task.batch, "max_batch_time": WAIT_MS / 1000} if task.batch > 1 else {}
    await MLServer(settings).start([ModelSettings(name="images", implementation=Images, **batching)])


if __name__ == "__main__":
    asyncio.run(main(read_task()))
