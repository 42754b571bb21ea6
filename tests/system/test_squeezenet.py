"""One real network on real photos: SqueezeNet as ONNX and as OpenVINO IR, in every way a program may send an image."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from cluster_serving.client import ErrorCode, InputQueue, OutputQueue, RecordFailed
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

MODELS = Path(__file__).resolve().parents[3] / "shared" / "models"
PHOTOS = [MODELS / "photos" / f"{name}.jpeg" for name in ("cat1", "dog1", "fish1")]
WITHIN = 1e-4

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"the model fixtures are not at {MODELS}")

TopFive = list[tuple[int, float]]

WAYS: dict[str, Callable[[Path], Any]] = {
    "path": str,
    "bytes": Path.read_bytes,
    "base64": lambda photo: {"b64": base64.b64encode(photo.read_bytes()).decode()},
    "pixels": lambda photo: {"image": cv2.imread(str(photo))},
    "tensor": lambda photo: np.load(MODELS / "squeezenet.input.npy")[PHOTOS.index(photo)],
}


@pytest.fixture(scope="module", params=["onnx", "openvino"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def node(backend: str, redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """Gives the 1000 probabilities; the size of images is found from the model."""
    settings = {"modelPath": str(MODELS / f"squeezenet-{backend}"), "jobName": f"all-{backend}", "batchSize": 4}
    with running_node(tmp_path_factory.mktemp("node"), redis_server, **settings) as node:
        assert node.heartbeat()["backend"] == backend
        yield node


@pytest.fixture(scope="module")
def top_node(
    backend: str, redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningNode]:
    """Gives the five likeliest classes; the size of images is set."""
    settings = {"modelPath": str(MODELS / f"squeezenet-{backend}"), "jobName": f"top-{backend}", "batchSize": 4}
    settings |= {"postProcessing": "topN(5)", "imageResize": "227,227"}
    with running_node(tmp_path_factory.mktemp("node"), redis_server, **settings) as node:
        yield node


@pytest.fixture
def queue(node: RunningNode, redis_server: PrivateRedis) -> Iterator[InputQueue]:
    with InputQueue(port=redis_server.port, name=node.job) as queue:
        yield queue


def known(photo: Path) -> TopFive:
    document = json.loads((MODELS / f"squeezenet.{photo.stem}.top5.json").read_text())
    return [(place["index"], place["prob"]) for place in document["top5"]]


def top_five(probabilities: Any) -> TopFive:
    assert (probabilities.shape, probabilities.dtype) == ((1000,), np.float32)
    return [(int(index), float(probabilities[index])) for index in np.argsort(probabilities)[::-1][:5]]


def assert_right(photo: Path, found: TopFive) -> None:
    expected = known(photo)
    assert [index for index, _ in found] == [index for index, _ in expected], photo.name
    np.testing.assert_allclose([p for _, p in found], [p for _, p in expected], rtol=0, atol=WITHIN, err_msg=photo.name)


def original(server: PrivateRedis, job: str, values: list[Any]) -> list[Any]:
    """Return the answers of the original dialect to these values, each the one input `t`."""
    with (
        InputQueue(port=server.port, name=job, dialect="original") as queue,
        OutputQueue(port=server.port, name=job) as output,
    ):
        for number, value in enumerate(values):
            queue.enqueue(f"o{number}", t=value)
        answers: dict[str, Any] = {}

        def all_there() -> bool:
            answers.update(output.dequeue())
            return len(answers) == len(values)

        wait_until(all_there, "every answer")
    return [answers[f"o{number}"] for number in range(len(values))]


@pytest.mark.parametrize("way", WAYS)
def test_photos_are_recognised_however_they_are_sent(way: str, queue: InputQueue) -> None:
    answers: list[Any] = list(queue.predict_many({"data": WAYS[way](photo)} for photo in PHOTOS))

    for photo, answer in zip(PHOTOS, answers, strict=True):
        assert_right(photo, top_five(answer))


def test_the_input_binds_by_position_too(queue: InputQueue) -> None:
    assert_right(PHOTOS[1], top_five(queue.predict(str(PHOTOS[1]), timeout=60)))


@pytest.mark.parametrize("way", WAYS)
def test_the_filter_gives_class_and_probability(way: str, top_node: RunningNode, redis_server: PrivateRedis) -> None:
    with InputQueue(port=redis_server.port, name=top_node.job) as queue:
        answers: list[Any] = list(queue.predict_many({"data": WAYS[way](photo)} for photo in PHOTOS))

    for photo, answer in zip(PHOTOS, answers, strict=True):
        assert isinstance(answer, list)
        assert all([type(part) for part in pair] == [int, float] for pair in answer)
        assert_right(photo, [(index, p) for index, p in answer])


def test_one_broken_photo_leaves_its_neighbours_alone(queue: InputQueue) -> None:
    jpeg = PHOTOS[1].read_bytes()
    broken = {
        "nothing": {"b64": ""},
        "its start": jpeg[:100],
        "a half": jpeg[: len(jpeg) // 2],
        "no image": b"\xff\xd8\xff" + bytes(100),
    }
    requests = [*map(str, PHOTOS), *broken.values(), *map(str, PHOTOS)]

    answers: list[Any] = list(queue.predict_many({"data": request} for request in requests))

    for photo, answer in zip(2 * PHOTOS, answers[:3] + answers[7:], strict=True):
        assert_right(photo, top_five(answer))
    for what, answer in zip(broken, answers[3:7], strict=True):
        assert isinstance(answer, RecordFailed), what
        assert answer.code == ErrorCode.INVALID_INPUT, what
        assert answer.reason.startswith("input 'data': "), what
        assert "image" in answer.reason, what


@pytest.mark.parametrize("way", ["bytes", "base64", "tensor"])
def test_the_original_dialect_gives_the_same(way: str, node: RunningNode, redis_server: PrivateRedis) -> None:
    answers = original(redis_server, node.job, [WAYS[way](photo) for photo in PHOTOS])

    for photo, answer in zip(PHOTOS, answers, strict=True):
        assert_right(photo, top_five(answer))


def test_the_original_dialect_encodes_an_image_path_once_more(
    node: RunningNode, queue: InputQueue, redis_server: PrivateRedis
) -> None:
    """The photo is read and sent as a new JPEG, as by the original's client, which moves the probabilities a little."""
    again = [cv2.imencode(".jpg", WAYS["pixels"](photo)["image"])[1].tobytes() for photo in PHOTOS]
    expected: list[Any] = list(queue.predict_many({"data": jpeg} for jpeg in again))

    answers = original(redis_server, node.job, [str(photo) for photo in PHOTOS])

    for photo, answer, want in zip(PHOTOS, answers, expected, strict=True):
        np.testing.assert_allclose(answer, want, rtol=0, atol=1e-6)
        assert top_five(answer)[0][0] == known(photo)[0][0]


def test_the_original_dialect_has_the_filters_rows(top_node: RunningNode, redis_server: PrivateRedis) -> None:
    answers = original(redis_server, top_node.job, [photo.read_bytes() for photo in PHOTOS])

    for photo, answer in zip(PHOTOS, answers, strict=True):
        assert_right(photo, [(index, p) for index, p in answer])
