"""Programs of the original, unchanged but for their search path, and a node."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from zoo.serving.client import InputQueue

from cluster_serving.client import QueueFull, keys
from cluster_serving.node.config.migration import migrate
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "support" / "original_programs"
DIGITS = ROOT / "node" / "quickstart" / "model"
JOB = "serving_stream"


@pytest.fixture(scope="module", autouse=True)
def node(server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with the settings that `migrate` finds in a file of 0.8."""
    home = tmp_path_factory.mktemp("node")
    old = home / "old.yaml"
    old.write_text(
        f"model: {{path: {DIGITS}}}\ndata: {{image_shape: '1,8,8', filter: None}}\nspark: {{master: yarn}}\n"
    )
    with running_node(home, server, **migrate(old).settings, jobName=JOB) as node:
        yield node


def run(program: str, *arguments: object) -> list[str]:
    """Run a program, with nothing but the shim put on its search path, and return the lines that it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "client" / "compat")}
    command = [sys.executable, "-P", str(PROGRAMS / program), *map(str, arguments)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def test_images_by_base64(server: PrivateRedis, tmp_path: Path) -> None:
    held_out = np.load(DIGITS.parent / "held_out.npz")
    digits = {f"digit{label}": held_out["images"][held_out["labels"] == label][0] for label in (3, 7)}
    for name, pixels in digits.items():
        cv2.imwrite(str(tmp_path / f"{name}.png"), pixels)

    printed = run("image_classification.py", "localhost", server.port, JOB, "-i", tmp_path)

    assert printed == [
        "digit3 prediction layer shape:  (10,)",
        "the class index of prediction of digit3 image result:  3",
        "digit3 prediction layer shape:  (10,)",
        "the class index of prediction of digit3 image result:  3",
        "digit7 prediction layer shape:  (10,)",
        "the class index of prediction of digit7 image result:  7",
    ]


def test_host_and_port_in_order_and_the_deprecated_calls(server: PrivateRedis) -> None:
    assert run("recommendation.py", "localhost", server.port) == [
        f"localhost '{server.port}' {JOB} []",
        "Result is :(10,) float32",
        "True",
        "NaN (10,)",
    ]


def test_results_read_by_redis_py(server: PrivateRedis) -> None:
    assert run("throughput.py", "localhost", server.port, JOB, 60) == [
        "Entering initial dequeue",
        "Received 60 results, including 0 invalid results",
    ]


def test_a_full_queue_prints_the_sentence_of_the_original(
    server: PrivateRedis, capsys: pytest.CaptureFixture[str]
) -> None:
    with server.client() as client:
        client.hset(keys.limits_key("full"), "maxQueueLength", "1")
    with InputQueue(host="localhost", port=server.port, name="full", patience_s=0.05) as queue:
        queue.enqueue("a", t=np.zeros(1))

        with pytest.raises(QueueFull):
            queue.enqueue("b", t=np.zeros(1))

    sentence = "Redis queue is full, please wait for inference or delete the unprocessed records.\n"
    assert capsys.readouterr().out == sentence


def test_a_client_of_0_8_is_answered_where_it_looks(server: PrivateRedis) -> None:
    pixels = np.load(DIGITS.parent / "held_out.npz")["images"][0]
    jpeg = base64.b64encode(cv2.imencode(".jpg", pixels)[1].tobytes())
    with server.client() as client:
        client.xadd("image_stream", {"uri": "good", "image": jpeg})
        client.xgroup_create("image_stream", "serving")
        client.xadd("image_stream", {"uri": "bad", "image": jpeg[:50]})

        wait_until(lambda: len(client.keys("result:*")) == 2, "both results")
        found = json.loads(client.hget("result:good", "value") or "")
        failed = client.hget("result:bad", "value")

    with InputQueue(host="localhost", port=server.port) as queue:
        np.testing.assert_allclose(found, queue.predict({"image": {"b64": jpeg}}, timeout=60), rtol=1e-6)
    assert failed == b"NaN"
