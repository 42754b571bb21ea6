"""The tiny model that is measured where the model must not count, with random weights."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save_mlp(directory: Path) -> None:
    """A folder with an ONNX model: x float32 [N,128] -> 256 -> y float32 [N,10]."""
    random = np.random.default_rng(0)
    weights = [random.standard_normal(shape, np.float32) / 12 for shape in ((128, 256), (256, 10))]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w1"], ["hidden"]),
            helper.make_node("Relu", ["hidden"], ["active"]),
            helper.make_node("MatMul", ["active", "w2"], ["y"]),
        ],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 128])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(weight, f"w{index + 1}") for index, weight in enumerate(weights)],
    )
    directory.mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(directory / "mlp.onnx"))
