"""A real node that serves an encrypted model, and one that takes encrypted images."""

import base64
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
import pytest
import yaml
from numpy.typing import NDArray

from cluster_serving.client import ErrorCode, InputQueue, OutputQueue, RecordFailed, keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.wire.encryption import ModelCipher, RecordCipher
from cluster_serving.node import quickstart
from cluster_serving.node.models import sealed
from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.detect import detect, load
from cluster_serving.node.models.sealed import wait_for_secrets
from cluster_serving.node.models.secrets import Secrets
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

DIGITS = Path(quickstart.__file__).parent / "model" / "digits.onnx"
SECRET, SALT = "correct horse", "battery staple"
WAITING = (
    "Waiting for Model Encrypted Secret and Salt in Redis,"
    "please put them in model_secured -> secret and model_secured -> salt"
)
# Sealed with other secrets than these: what opens it by chance, one in 256, is known not to.
SEALED_BY_OTHERS = b"AAECAwQFBgcICQoLDA0OD1SVJsIyvOwWKOD5Ii0J4Co="

Image = NDArray[np.uint8]


@pytest.fixture(scope="module")
def images() -> Image:
    held_out: Image = np.load(DIGITS.parents[1] / "held_out.npz")["images"]
    return held_out[:5]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The directory of an encrypted model."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "digits.onnx").write_bytes(ModelCipher(SECRET, SALT).seal(DIGITS.read_bytes()))
    return directory


@pytest.fixture
def no_secrets_in_redis(redis_server: PrivateRedis) -> Iterator[None]:
    """Other tests' nodes find none either."""
    yield
    with redis_server.client() as client:
        client.delete(keys.MODEL_SECURED)


def expected(images: Image) -> NDArray[Any]:
    """Return the answers of the model that is not encrypted."""
    backend = load(detect(str(DIGITS)), LoadOptions())
    return np.asarray(backend.run({"image": images[:, np.newaxis].astype(np.float32)})["probability"])


def answers(server: PrivateRedis, job: str, images: Image) -> NDArray[Any]:
    with InputQueue(port=server.port, name=job) as queue:
        found: list[Any] = list(queue.predict_many({"image": {"image": image}} for image in images))
    return np.stack(found)


def assert_no_secret_shows(node: RunningNode) -> None:
    processes = [psutil.Process(node.process.pid), *psutil.Process(node.process.pid).children(recursive=True)]
    shown = node.log + "".join(" ".join(process.cmdline()) for process in processes)
    assert SECRET not in shown
    assert SALT not in shown


def test_a_node_opens_a_model_with_secrets_of_its_environment(
    redis_server: PrivateRedis, tmp_path: Path, model: Path, images: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("CLUSTER_SERVING_MODEL_SECRET_FILE", str(tmp_path / "secret"))
    monkeypatch.setenv("CLUSTER_SERVING_MODEL_SALT", SALT)
    monkeypatch.setenv("TMPDIR", str(temporary))
    settings: dict[str, Any] = {"modelPath": str(model), "modelEncrypted": True, "jobName": "sealed"}

    with running_node(tmp_path / "home", redis_server, **settings) as node:
        found = answers(redis_server, "sealed", images)

        assert_no_secret_shows(node)
        assert not [path for path in temporary.iterdir() if path.is_dir()]  # ONNX Runtime leaves a file of its own
        assert node.heartbeat()["model"] == str(model / "digits.onnx")
    np.testing.assert_allclose(found, expected(images), rtol=1e-5)


@pytest.mark.usefixtures("no_secrets_in_redis")
def test_a_node_waits_until_somebody_puts_the_secrets_into_redis(
    redis_server: PrivateRedis, tmp_path: Path, model: Path, images: Image
) -> None:
    log = tmp_path / "home" / "test.log"

    def put() -> None:
        wait_until(lambda: log.exists() and WAITING in log.read_text(), "the node waits")
        with redis_server.client() as client:
            client.hset(keys.MODEL_SECURED, mapping={"secret": SECRET, "salt": SALT})

    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    settings: dict[str, Any] = {"modelPath": str(model), "modelEncrypted": True, "jobName": "waits"}

    with running_node(tmp_path / "home", redis_server, **settings) as node:
        thread.join()
        found = answers(redis_server, "waits", images)

        assert "Retrying in 3 seconds..." in node.log
        assert_no_secret_shows(node)
    np.testing.assert_allclose(found, expected(images), rtol=1e-5)


def test_a_node_that_waits_for_secrets_can_be_stopped(redis_server: PrivateRedis, tmp_path: Path, model: Path) -> None:
    config, log = tmp_path / "config.yaml", tmp_path / "log"
    settings = {"modelPath": str(model), "modelEncrypted": True, "jobName": "stopped", "redisUrl": redis_server.url}
    config.write_text(yaml.safe_dump(settings | {"modelParallelism": 1}))
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "start", "--foreground", "-c", str(config)]

    with log.open("wb") as stream, subprocess.Popen(command, stdout=stream, stderr=stream) as process:
        try:
            wait_until(lambda: WAITING in log.read_text(), "the node waits")
            process.terminate()
            code = process.wait(120)
        finally:
            process.kill()

    assert code == ExitCode.OK


def test_a_wrong_secret_ends_the_start_with_one_sentence(
    redis_server: PrivateRedis, tmp_path: Path, model: Path
) -> None:
    (model / "digits.onnx").write_bytes(SEALED_BY_OTHERS)
    settings: dict[str, Any] = {"modelPath": str(model), "modelEncrypted": True, "jobName": "wrong"}

    with pytest.raises(AssertionError) as caught:
        RunningNode(tmp_path / "home", redis_server, **settings, modelSecret=SECRET, modelSalt=SALT)

    text = str(caught.value)
    assert text.startswith(f"the node ended with {ExitCode.MODEL}:")
    assert f"{model / 'digits.onnx'} cannot be opened: it was encrypted with another secret or salt" in text
    assert "Traceback" not in text
    assert SECRET not in text
    assert SALT not in text


def test_a_model_that_is_not_encrypted_is_refused(redis_server: PrivateRedis, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"modelPath": str(DIGITS.parent), "modelEncrypted": True, "jobName": "clear"}

    with pytest.raises(AssertionError, match=r"digits\.onnx is not encrypted: encrypt it with cluster-serving encrypt"):
        RunningNode(tmp_path / "home", redis_server, **settings, modelSecret=SECRET, modelSalt=SALT)


def test_waiting_outlives_redis_and_half_of_the_secrets(
    own_redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed, "_RETRY_S", 0.05)
    own_redis.stop()
    settings = RedisSettings(host="127.0.0.1", port=own_redis.port)
    said: list[str] = []
    found: list[Secrets] = []
    waiting = threading.Thread(
        target=lambda: found.append(wait_for_secrets(settings, said.append, Secrets())), daemon=True
    )

    waiting.start()
    wait_until(lambda: any("cannot be asked for the secret and salt" in line for line in said), "Redis is missed")
    own_redis.start()
    with own_redis.client() as client:
        client.hset(keys.MODEL_SECURED, "secret", SECRET)
        count = len(said)
        wait_until(lambda: len(said) > count + 6, "it asks again")
        assert found == []
        client.hset(keys.MODEL_SECURED, "salt", SALT)
    waiting.join(120)

    assert found == [Secrets(SECRET, SALT)]
    assert said[-2:] == [WAITING, "Retrying in 3 seconds..."]


@pytest.fixture(scope="module")
def takes_encrypted(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    settings = {"modelPath": str(DIGITS), "jobName": "records", "recordEncrypted": True}
    settings |= {"recordSecret": SECRET, "recordSalt": SALT}
    with running_node(tmp_path_factory.mktemp("records"), redis_server, **settings) as node:
        yield node


def jpeg(image: Image) -> tuple[bytes, NDArray[np.float32]]:
    """A file, and what a model sees of it."""
    content = cv2.imencode(".jpg", image)[1].tobytes()
    pixels: Any = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_GRAYSCALE)
    return content, pixels[np.newaxis].astype(np.float32)


WAYS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "text": lambda content: {"b64": base64.b64encode(content).decode()},
}


@pytest.mark.parametrize("way", WAYS)
def test_an_encrypted_image_gives_the_same_answer_as_its_pixels(
    takes_encrypted: RunningNode, redis_server: PrivateRedis, images: Image, way: str
) -> None:
    content, pixels = jpeg(images[0])
    sent = WAYS[way](RecordCipher(SECRET, SALT).seal(content))

    with InputQueue(port=redis_server.port, name="records") as queue:
        native, in_clear = queue.predict({"image": sent}, timeout=60), queue.predict({"image": pixels}, timeout=60)
    with (
        InputQueue(port=redis_server.port, name="records", dialect="original") as queue,
        OutputQueue(port=redis_server.port, name="records") as output,
    ):
        queue.enqueue(f"old-{way}", image=sent)
        wait_until(lambda: not isinstance(output.query(f"old-{way}"), str), "the result")
        original: Any = output.query(f"old-{way}")

    np.testing.assert_allclose(native, in_clear, rtol=1e-5)
    np.testing.assert_allclose(np.ravel(original), np.ravel(in_clear), rtol=1e-5)


def test_a_record_that_does_not_open_fails_alone(
    takes_encrypted: RunningNode, redis_server: PrivateRedis, images: Image
) -> None:
    content, _ = jpeg(images[1])
    good = RecordCipher(SECRET, SALT).seal(content)
    bad = {1: RecordCipher(SECRET, "salt").seal(content), 2: content, 4: good[:-1], 5: b"x"}
    sent = [{"image": bad.get(n, good)} for n in range(7)]

    with InputQueue(port=redis_server.port, name="records") as queue:
        found = list(queue.predict_many(sent))

    failed = {n: answer for n, answer in enumerate(found) if isinstance(answer, RecordFailed)}
    assert failed.keys() == bad.keys()
    for failure in failed.values():
        assert failure.code == ErrorCode.INVALID_INPUT
        assert "input 'image': it is not encrypted, or" in failure.reason
    assert SECRET not in takes_encrypted.log
