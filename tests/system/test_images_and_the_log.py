"""Images of any client cannot fill the log with the warnings of codecs."""

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from cluster_serving.client import InputQueue, RecordFailed
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import running_node

IMAGE = np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)


def encoded(extension: str) -> bytes:
    return cv2.imencode(extension, IMAGE)[1].tobytes()


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_with_warnings() -> bytes:
    """A valid image, of which libpng writes more than the image weighs."""
    png = encoded(".png")
    return png[:33] + 500 * chunk(b"gAMA", bytes(4)) + png[33:]


def broken_tiff() -> bytes:
    return encoded(".tiff")[:-30]


@pytest.mark.parametrize(
    ("image", "times", "fails"), [(png_with_warnings(), 500, False), (broken_tiff(), 5000, True)], ids=["png", "tiff"]
)
def test_the_log_weighs_less_than_the_images(
    redis_server: PrivateRedis, tmp_path: Path, image: bytes, times: int, fails: bool
) -> None:
    with (
        running_node(tmp_path, redis_server, modelPath=str(MODELS / "v2_image.py"), jobName="images") as node,
        InputQueue(url=redis_server.url, name="images") as queue,
    ):
        before = len(node.log)

        answers = list(queue.predict_many([{"image": image}] * times))

        assert [isinstance(answer, RecordFailed) for answer in answers] == [fails] * times
        node.stop()
        grown = len(node.log) - before
        assert grown < min(1 << 20, len(image) * times)
        assert ("standard error is cut" in node.log) == (not fails)
