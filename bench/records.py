"""The records that measurements send: rows of the tiny MLP, and pictures as files or as tensors, all from a seed."""

from collections.abc import Callable
from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bench.architectures import SIDE

DISTINCT = 16
"""A client sends so many different ones in turn."""

_QUALITY = 90


def row(number: int) -> NDArray[np.float32]:
    """Return an input of the tiny MLP: (128,)."""
    return np.random.default_rng(number).uniform(-1, 1, 128).astype(np.float32)


@cache
def jpeg(number: int, height: int = 375, width: int = 500) -> bytes:
    """A JPEG file of some 50 KB for 500 x 375 pixels, as photographs of this size have: soft shapes and a little noise."""
    random = np.random.default_rng(number)
    shapes = random.integers(0, 256, (12, 16, 3), np.uint8)
    picture = cv2.resize(shapes, (width, height), interpolation=cv2.INTER_CUBIC)
    noisy = np.clip(picture + random.normal(0, 6, picture.shape), 0, 255).astype(np.uint8)
    return cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1].tobytes()


def pixels(content: bytes) -> NDArray[np.float32]:
    """Return the input of a model of `architectures.py` from a file: (3, 224, 224), BGR of 0 to 255. By OpenCV, as in a node."""
    decoded = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    resized = cv2.resize(decoded, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    return np.stack(cv2.split(resized)).astype(np.float32)


RECORDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "row": lambda number: {"x": row(number)},
    "tensor": lambda number: {"image": pixels(jpeg(number))},
    "jpeg": lambda number: {"image": jpeg(number)},
}
"""By kind: the inputs of record `number`, as `InputQueue.predict` takes them."""
