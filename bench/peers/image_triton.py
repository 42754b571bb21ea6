# mypy: disable-error-code="import-not-found,misc,untyped-decorator"
# pyright: basic
# pyright: reportMissingImports=false
# PyTriton is installed in an environment of its own only.
"""Triton, as PyTriton brings it: binary data of the Open Inference Protocol in and out; its Python backend asks this process.

Each copy of the model has a thread here: ONNX Runtime and OpenCV let go of Python's lock.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

from bench.peers.image import WAIT_MS, Logits, Model, Task, read_task

CLASSES = 1000


def copy(task: Task) -> Callable[..., dict[str, Logits]]:
    """A function that runs a copy of the model."""
    model = Model(task.model, task.threads)

    @batch
    def infer(image: NDArray[np.object_]) -> dict[str, Logits]:
        """Run a batch."""
        return {"logits": model.run(image[:, 0].tolist())}

    function: Callable[..., dict[str, Logits]] = infer
    return function


if __name__ == "__main__":
    task = read_task()
    settings = TritonConfig(
        http_address="127.0.0.1", http_port=task.port, grpc_port=task.port + 1, allow_metrics=False, log_verbose=0
    )
    batching = {"batcher": DynamicBatcher(max_queue_delay_microseconds=WAIT_MS * 1000)} if task.batch > 1 else {}
    with Triton(config=settings) as triton:
        triton.bind(
            model_name="images",
            infer_func=[copy(task) for _ in range(task.processes)],
            inputs=[Tensor(name="image", dtype=bytes, shape=(1,))],
            outputs=[Tensor(name="logits", dtype=np.float32, shape=(CLASSES,))],
            config=ModelConfig(max_batch_size=task.batch, **batching),
        )
        triton.serve()
