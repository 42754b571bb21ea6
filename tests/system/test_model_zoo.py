"""Every reference model through a running node, beside the outputs that its own framework gave."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster_serving.client import InputQueue
from support.private_redis import PrivateRedis
from support.running_node import running_node

MODELS = Path(__file__).resolve().parents[3] / "shared" / "models"
CASES: list[dict[str, Any]] = json.loads((MODELS / "cases.json").read_text()) if MODELS.is_dir() else []
ONE_LAYER = "bigdl-layers/"  # some of these layers mix the rows of a batch, so that the batch must stay as it is
# integration/test_bigdl_models.py compares every BigDL model; through a node goes one of each kind of file, or all: ALL_MODELS=1.
BIGDL_KINDS = {
    "squeezenet-bigdl",
    "bigdl-lenet-split",
    "bigdl-lstm",
    "bigdl-batch1-reshape",
    "bigdl-zoo-text",
    "bigdl2-graph",
    "bigdl-legacy-zoo-model",
    "bigdl-layers/ResizeBilinear",
    "bigdl-layers/Transpose",
}
CHOSEN = [
    case for case in CASES if case["format"] != "bigdl" or case["id"] in BIGDL_KINDS or "ALL_MODELS" in os.environ
]
SERVED = {case["id"]: case for case in CHOSEN if "expect" not in case}
REFUSED = {case["id"]: case for case in CASES if "expect" in case}
PHOTOS = [MODELS / "photos" / f"{name}.jpeg" for name in ("cat1", "dog1", "fish1")]
SQUEEZENETS = [name for name in SERVED if name.startswith("squeezenet-")]

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"the model fixtures are not at {MODELS}")

Arrays = list[NDArray[Any]]


class Zoo:
    """Starts the nodes that the selected tests need, a few at a time, while earlier ones are being compared."""

    def __init__(self, home: Path, server: PrivateRedis, names: set[str]) -> None:
        self._home, self._server = home, server
        self._pool = ThreadPoolExecutor(
            (os.cpu_count() or 1) + 1
        )  # a node that starts or stops is idle for some of the time
        self._answers: dict[str, Future[tuple[Arrays, Arrays]]] = {
            name: self._pool.submit(self._serve, SERVED[name]) for name in SERVED if name in names
        }

    def outputs(self, name: str) -> Arrays:
        """Return the outputs that the node gave for the case's input, rows first."""
        return self._answers[name].result()[0]

    def photos(self, name: str) -> Arrays:
        """Return the outputs of a SqueezeNet for each photo, sent as JPEG."""
        return self._answers[name].result()[1]

    def close(self) -> None:
        """Start no further node."""
        self._pool.shutdown(cancel_futures=True)

    def _serve(self, case: dict[str, Any]) -> tuple[Arrays, Arrays]:
        job = case["id"].replace("/", "-")
        settings = {"modelPath": str(MODELS / case["dir"]), "jobName": job, "batchSize": 4}
        whole = case["id"].startswith(ONE_LAYER)
        if whole:
            settings["inputAlreadyBatched"] = True
        if case["id"] in SQUEEZENETS:
            settings["imageResize"] = "227,227"
        inputs = {each["name"]: np.load(MODELS / each["file"]) for each in case["inputs"]}
        with (
            running_node(self._home / job, self._server, **settings),
            InputQueue(port=self._server.port, name=job) as queue,
        ):
            photos: list[Any] = (
                list(queue.predict_many(str(photo) for photo in PHOTOS)) if case["id"] in SQUEEZENETS else []
            )
            if whole:
                return _outputs(queue.predict(inputs, timeout=60)), photos
            rows = range(len(next(iter(inputs.values()))))
            answers: list[Any] = list(
                queue.predict_many({name: array[row] for name, array in inputs.items()} for row in rows)
            )
        columns = zip(*[_outputs(answer) for answer in answers], strict=True)
        return [np.stack(column) for column in columns], photos


def _outputs(answer: Any) -> Arrays:
    if isinstance(answer, Exception):
        raise answer
    return answer if isinstance(answer, list) else [answer]


@pytest.fixture(scope="module")
def zoo(
    request: pytest.FixtureRequest, redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Zoo]:
    selected = {part for item in request.session.items for part in SERVED if f"[{part}]" in item.name}
    if any("agree" in item.name for item in request.session.items):
        selected |= set(SQUEEZENETS)
    zoo = Zoo(tmp_path_factory.mktemp("zoo"), redis_server, selected)
    yield zoo
    zoo.close()


@pytest.mark.timeout(1200)  # the first one waits for its turn among all
@pytest.mark.parametrize("name", SERVED)
def test_a_model_gives_what_its_framework_gave(name: str, zoo: Zoo) -> None:
    case = SERVED[name]

    outputs = zoo.outputs(name)

    assert len(outputs) == len(case["outputs"])
    for output, expected in zip(outputs, case["outputs"], strict=True):
        reference = np.load(MODELS / expected["file"])
        if case.get("compare") == "argmax":
            assert output.argmax(-1).tolist() == reference.argmax(-1).tolist()
        else:
            np.testing.assert_allclose(output.reshape(reference.shape), reference, rtol=1e-5, atol=case["atol"])


@pytest.mark.timeout(1200)
def test_the_seven_squeezenets_agree_on_photos(zoo: Zoo) -> None:
    reference = zoo.photos("squeezenet-onnx")
    for photo, expected in zip(PHOTOS, reference, strict=True):
        known = json.loads((MODELS / f"squeezenet.{photo.stem}.top5.json").read_text())["top5"]
        assert np.argsort(expected)[::-1][:5].tolist() == [place["index"] for place in known]

    for name in SQUEEZENETS:
        for answer, expected in zip(zoo.photos(name), reference, strict=True):
            found = answer.reshape(1000)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4, err_msg=name)
            assert np.argsort(found)[::-1][:5].tolist() == np.argsort(expected)[::-1][:5].tolist(), name


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_be_served_says_why(name: str, redis_server: PrivateRedis, tmp_path: Path) -> None:
    kinds = REFUSED[name]["expect"].partition("(")[2].rstrip(")").split(", ")

    with pytest.raises(AssertionError, match="the node ended with") as caught:
        running_node(tmp_path, redis_server, modelPath=str(MODELS / REFUSED[name]["dir"])).__enter__()

    assert any(kind in str(caught.value) for kind in kinds)
    assert "Traceback" not in str(caught.value)
