"""Images of any client cannot fill the log with the warnings of codecs."""

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from cluster_serving.client import InputQueue, RecordFailed
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import running_node
from support.wait import wait_until

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


def test_the_log_of_a_node_in_the_background_is_rotated(redis_server: PrivateRedis, tmp_path: Path) -> None:
    def command(*words: str) -> str:
        arguments = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words]
        environment = os.environ | {"CLUSTER_SERVING_HOME": str(tmp_path)}
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout

    where = [f"--model-path={MODELS / 'v2_image.py'}", f"--redis-url={redis_server.url}", "--job-name=rotated"]
    command("start", *where, *("--set=modelParallelism=1", "--set=threadPerModel=1", "--set=logBytes=64k"))
    try:
        with InputQueue(url=redis_server.url, name="rotated") as queue:
            for _ in queue.predict_many([{"image": png_with_warnings()}] * 20):
                pass
            log = tmp_path / "rotated" / "node.log"
            wait_until(log.with_name("node.log.1").exists, "the log is rotated")

            queue.predict({"image": encoded(".png")}, timeout=60)

        assert "libpng warning" in command("logs", "rotated", "-n", "1000")
    finally:
        command("stop", "rotated")
    assert "libpng warning" in log.with_name("node.log.1").read_text()  # while a log is rotated, it has no such name
    assert "event=stopped" in log.read_text()
