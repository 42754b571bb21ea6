"""Some of a model's outputs."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from cluster_serving.node.engines.chosen_outputs import ChosenOutputs
from cluster_serving.node.engines.engine import load
from cluster_serving.node.models.base import Array, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import detect
from cluster_serving.node.models.runtime import Runtime

NATIVE = Runtime("native", "f32")
BATCH = {"x": np.array([[1.0, -2.0]], np.float32)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """X [N,?] to its negative, its absolute value and itself."""
    names = {"negative": "Neg", "absolute": "Abs", "same": "Identity"}
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], [name]) for name, kind in names.items()],
        "three",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "W"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", "W"]) for name in names],
    )
    path = tmp_path_factory.mktemp("model") / "three.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return str(path)


def test_the_named_outputs_are_given_in_the_named_order(model: str) -> None:
    backend, *_ = load(detect(model), LoadOptions(outputs=("same", "negative")), NATIVE, 1)

    assert [spec.name for spec in backend.outputs] == ["same", "negative"]
    assert {name: array.tolist() for name, array in backend.run(BATCH).items()} == {
        "same": [[1, -2]],
        "negative": [[-1, 2]],
    }


def test_an_output_that_does_not_exist(model: str) -> None:
    with pytest.raises(ModelError, match=r"modelOutputs names nose; the model gives negative, absolute, same\."):
        load(detect(model), LoadOptions(outputs=("nose",)), NATIVE, 1)


class Late:
    """A model that tells its outputs after a run."""

    inputs: tuple[TensorSpec, ...] = (TensorSpec("x", "float32", None),)
    outputs: tuple[TensorSpec, ...] = ()

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Two outputs."""
        self.outputs = (TensorSpec("a", "float32", None), TensorSpec("b", "float32", None))
        return {"a": batch["x"], "b": -batch["x"]}


def test_outputs_that_are_known_after_a_run() -> None:
    backend = ChosenOutputs(Late(), ["b"])
    assert not list(backend.outputs)

    assert {name: array.tolist() for name, array in backend.run(BATCH).items()} == {"b": [[-1, 2]]}
    assert [spec.name for spec in backend.outputs] == ["b"]


def test_a_call_may_give_any_number_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "found.py"
    path.write_text(
        "class Found:\n"
        "    inputs, outputs = ['x float32 [N,2]'], ['y float32 [N,2]', 'n int64 []']\n"
        "    def predict(self, batch):\n"
        "        return {'y': batch['x'][batch['x'][:, 0] > 0], 'n': 1}\n"
    )
    backend, _, batching, _ = load(detect(str(path)), LoadOptions(outputs=("y",), batching="none"), NATIVE, 1)

    assert batching.mode == "none"
    assert backend.run({"x": np.zeros((3, 2), np.float32)})["y"].shape == (0, 2)


def test_free_dimensions_may_be_stated(model: str) -> None:
    backend, *_ = load(detect(model), LoadOptions(inputs=("x float32 [N,2]",)), NATIVE, 1)

    assert backend.inputs == (TensorSpec("x", "float32", (None, 2)),)


@pytest.mark.parametrize("stated", ["x float32 [N,2,2]", "x float32 [N]"])
def test_a_shape_that_the_model_does_not_take(model: str, stated: str) -> None:
    with pytest.raises(ModelError, match=r"modelInputs says x float32 .*, and the model takes x float32 \[N,\?\]\."):
        load(detect(model), LoadOptions(inputs=(stated,)), NATIVE, 1)
