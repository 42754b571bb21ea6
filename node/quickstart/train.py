"""Make the quick start's model and its images: `python -m cluster_serving.node.quickstart.train`.

The data are scikit-learn's 1,797 handwritten digits of 8 x 8 pixels. The same versions of numpy, scikit-learn and onnx give
the same bytes on every run.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

MODEL = Path(__file__).parent / "model" / "digits.onnx"
HELD_OUT = Path(__file__).parent / "held_out.npz"

_SEED = 5
_CLASSES = 10
_SIDE = 8
_WHITE = 255
# Versions that onnxruntime 1.18 and openvino 2024.4 can read.
_OPSET = 17
_IR_VERSION = 8

Images = NDArray[np.uint8]  # (images, 8, 8), 0..255, white ink on black
Labels = NDArray[np.int64]  # (images,), 0..9
Weights = NDArray[np.float32]


def main() -> None:
    """Train on four fifths of the digits, and write the model and the other fifth."""
    digits: Any = load_digits()
    images: Images = np.rint(digits.images * (_WHITE / digits.images.max())).astype(np.uint8)
    labels: Labels = digits.target.astype(np.int64)
    parts: Any = train_test_split(images, labels, test_size=0.2, stratify=labels, random_state=_SEED)
    trained_on, held_out, trained_labels, held_out_labels = parts
    network = MLPClassifier((64,), alpha=0.01, max_iter=400, random_state=_SEED)
    network.fit(_pixels(trained_on), trained_labels)
    accuracy = network.score(_pixels(held_out), held_out_labels)

    MODEL.parent.mkdir(exist_ok=True)
    MODEL.write_bytes(_model(network.coefs_, network.intercepts_).SerializeToString(deterministic=True))
    np.savez(HELD_OUT, images=held_out, labels=held_out_labels)
    print(f"{MODEL.name}: {MODEL.stat().st_size} bytes, {accuracy:.1%} of {len(held_out)} held-out digits right")


def _pixels(images: Images) -> Weights:
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(_WHITE)


def _model(weights: list[NDArray[Any]], biases: list[NDArray[Any]]) -> onnx.ModelProto:
    """Return the network as an ONNX model from `image` float32 [N,1,8,8], 0..255, to `probability` float32 [N,10]."""
    constants: dict[str, Weights] = {
        "scale": np.array([1 / _WHITE], np.float32),
        "hidden.weight": weights[0].astype(np.float32),
        "hidden.bias": biases[0].astype(np.float32),
        "digit.weight": weights[1].astype(np.float32),
        "digit.bias": biases[1].astype(np.float32),
    }
    graph = helper.make_graph(
        nodes=[
            helper.make_node("Flatten", ["image"], ["pixels"]),
            helper.make_node("Mul", ["pixels", "scale"], ["scaled"]),
            helper.make_node("Gemm", ["scaled", "hidden.weight", "hidden.bias"], ["hidden"]),
            helper.make_node("Relu", ["hidden"], ["active"]),
            helper.make_node("Gemm", ["active", "digit.weight", "digit.bias"], ["digit"]),
            helper.make_node("Softmax", ["digit"], ["probability"], axis=1),
        ],
        name="digits",
        inputs=[helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, _SIDE, _SIDE])],
        outputs=[helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["N", _CLASSES])],
        initializer=[numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION, producer_name="cluster-serving"
    )
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    main()
