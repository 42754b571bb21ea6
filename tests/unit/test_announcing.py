"""Announcements of a node to the command that waits for it."""

import pytest

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.node.config.config import Config
from cluster_serving.node.models.detect import detect
from cluster_serving.node.supervisor.announcing import tell_serving
from cluster_serving.node.supervisor.generation import Generation
from support.models import MODELS
from support.turning import arrangement

X, Y = TensorSpec("x", "float32", (None, 4)), TensorSpec("y", "float32", (None, 2))


@pytest.mark.parametrize(
    ("inputs", "outputs", "shapes"),
    [
        ((X,), (Y,), "x float32 [N,4] -> y float32 [N,2]"),
        ((X,), (), "x float32 [N,4]"),  # of TorchScript, or where a postprocess makes them
        ((), (), "one or more tensors"),
    ],
)
def test_shapes_that_are_not_known_leave_no_gap(
    inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], shapes: str
) -> None:
    told: list[tuple[str, str]] = []

    def report(event: str, text: str, code: int = 0) -> None:
        told.append((event, text))

    config = Config(model_path=str(MODELS / "affine.py"))
    lanes = Generation(config, detect(config.model_path, None, ()), "node", 0, arrangement(1))
    try:
        lanes.served_model.inputs, lanes.served_model.outputs = inputs, outputs
        tell_serving(lanes, report)
    finally:
        lanes.close()

    assert told == [("ready", f"affine.py (python): {shapes}; 1 worker x 1 thread, batch 4")]
