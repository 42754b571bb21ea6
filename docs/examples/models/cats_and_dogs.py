"""Make `model.onnx`, `cat.jpeg` and `dog.jpeg` for the README: 1000 classes that mean nothing, and pictures of noise.

Input `data` float32 [N,3,227,227], output `probability` float32 [N,1000].
"""

from pathlib import Path

import cv2
import numpy as np
from onnx_file import save

GRAPH = """
classify (float[batch, 3, 227, 227] data) => (float[batch, 1000] probability) {
    mean = ReduceMean<axes = [2, 3], keepdims = 0>(data)
    products = MatMul(mean, weight)
    probability = Softmax<axis = -1>(products)
}
"""


def main() -> None:
    """Make the files here."""
    random = np.random.default_rng(1)
    save(Path("model.onnx"), GRAPH, weight=random.normal(0, 0.01, (3, 1000)).astype(np.float32))
    for name in ("cat", "dog"):
        cv2.imwrite(f"{name}.jpeg", random.integers(256, size=(300, 400, 3), dtype=np.uint8))


if __name__ == "__main__":
    main()
