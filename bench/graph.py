"""An ONNX graph under construction, of a classifier."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

CLASSES = 1000


class Graph:
    """Nodes and weights of a model with this name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def _append(self, kind: str, sources: Sequence[str], **attributes: Any) -> str:
        """Append a node, and return the name of its output."""
        result = f"{kind.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, sources, [result], **attributes))
        return result

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        """Add a weight, and return its name."""
        self._weights.append(numpy_helper.from_array(value, name))
        return name

    def _number(self, name: str, value: float) -> str:
        return self._constant(name, np.array(value, np.float32))

    def _write(
        self, features: str, classes: NDArray[np.float32], taken: tuple[str, int, Sequence[int]], directory: Path
    ) -> None:
        """Append a classifier with these weights, and write `NAME.onnx` into this directory, which is made.

        `taken` has name, type and shape of a row of the input.
        """
        weight, bias = self._constant("classes", classes), self._constant("classes_bias", np.zeros(CLASSES, np.float32))
        self._nodes.append(helper.make_node("Gemm", [features, weight, bias], ["logits"], transB=1))
        name, kind, row = taken
        graph = helper.make_graph(
            self._nodes,
            self._name,
            [helper.make_tensor_value_info(name, kind, ["N", *row])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])],
            self._weights,
        )
        directory.mkdir(parents=True, exist_ok=True)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, str(directory / f"{self._name}.onnx"))
