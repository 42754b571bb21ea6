# mypy: disable-error-code="import-not-found,misc"
# pyright: basic
# pyright: reportMissingImports=false
# MLServer is installed in an environment of its own only.
"""MLServer: no access log, the model in the server's own process: its worker process does not start with today's uvloop.

Arguments: the port, and the greatest batch; 1: no batches.
"""

import asyncio
import sys

from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from bench.http_model import Model


class Mlp(MLModel):
    """The model as MLServer's documentation has one."""

    async def load(self) -> bool:
        """Load it."""
        self._model = Model()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Run a batch, or one request."""
        y = self._model.predict({"x": self.decode(payload.inputs[0], default_codec=NumpyCodec)})["y"]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", y)])


async def main(port: int, batch: int) -> None:
    """Serve until stopped; the two ports after the given one are for gRPC and metrics."""
    settings = Settings(
        debug=False,
        host="127.0.0.1",
        http_port=port,
        grpc_port=port + 1,
        metrics_port=port + 2,
        metrics_dir="build/peers/mlserver/metrics",
        parallel_workers=0,
    )
    batching = {"max_batch_size": batch, "max_batch_time": 0.001} if batch > 1 else {}
    await MLServer(settings).start([ModelSettings(name="mlp", implementation=Mlp, **batching)])


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
