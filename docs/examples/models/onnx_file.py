"""ONNX files from the text form of a graph and its weights."""

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
from numpy.typing import NDArray
from onnx import numpy_helper


def save(path: Path, graph: str, **weights: NDArray[Any]) -> None:
    """Save a model; its folder is made.

    Args:
        path: file.
        graph: graph in ONNX's own text form; each name that no node makes is an input or a weight.
        weights: arrays by name.
    """
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    model.graph.initializer.extend(numpy_helper.from_array(weight, name) for name, weight in weights.items())
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
