"""Steps of a real node before and after the model: the user's own code, labels, the original's text, text, whole batches."""

import base64
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import cv2
import numpy as np
import pytest

from cluster_serving.client import ErrorCode, Failed, InputQueue, OutputQueue, RecordFailed
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

BATCH = np.arange(14, dtype=np.float32).reshape(7, 2)

IDENTITY = """
class Model:
    inputs = [("x", "float32", (None, 5))]
    outputs = [("y", "float32", (None, 5))]

    def predict(self, batch):
        return {"y": batch["x"]}
"""

DESCRIBE = """
import numpy as np

class Model:
    inputs = [("x", "float32", (BATCH, 2))]
    outputs = [("y", "float32", (BATCH, 2)), ("text", "str", (BATCH,))]

    def predict(self, batch):
        x = batch["x"]
        return {"y": 2 * x, "text": np.array([f"{a:g} and {b:g}" for a, b in x], object)}
"""

MEANS = """
class Model:
    inputs = [("pixels", "float32", (None, 2, 2)), ("weight", "float32", (None,))]
    outputs = [("mean", "float32", (None,))]

    def predict(self, batch):
        if (batch["weight"] == 13).any():
            raise ValueError("13 is no weight")
        return {"mean": batch["pixels"].mean(axis=(1, 2)) * batch["weight"]}
"""

STEPS = """
import os
import signal
from pathlib import Path

import cv2
import numpy as np

class Steps:
    def load(self):
        self.calls = (Path(__file__).parent / "calls.txt").open("a")

    def preprocess(self, record):
        print(record["n"], file=self.calls, flush=True)
        if record["n"] == 99:
            os.kill(os.getpid(), signal.SIGKILL)
        photo = cv2.imdecode(np.frombuffer(record["photo"], np.uint8), cv2.IMREAD_GRAYSCALE)
        return {"weight": len(record["words"]), "pixels": photo / 255}

    def postprocess(self, outputs):
        mean = outputs["mean"]
        if mean > 5:
            raise ValueError(f"{mean} is too much")
        if mean == 2:
            return {"double": np.asarray(2 * mean), "text": np.array(["two"])}
        return {"mean": mean, "kind": "light" if mean > 0.5 else "dark"}
"""


@contextmanager
def serving(home: Path, server: PrivateRedis, code: str, **settings: Any) -> Generator[RunningNode]:
    path = home / "model.py"
    path.write_text(dedent(code))
    with running_node(home / "node", server, modelPath=str(path), jobName=home.name, batchSize=8, **settings) as node:
        yield node


@pytest.fixture(scope="module")
def custom(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[InputQueue, Path]]:
    home = tmp_path_factory.mktemp("custom")
    (home / "steps.py").write_text(STEPS)
    settings = {"processing": f"{home}/steps.py:Steps", "maxBatchDelayMs": 200}
    with serving(home, redis_server, MEANS, **settings), InputQueue(port=redis_server.port, name=home.name) as queue:
        yield queue, home / "calls.txt"


@pytest.fixture(scope="module")
def filtered(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("filtered")
    (home / "labels.txt").write_text("\n".join(f"class {n}" for n in range(4)), encoding="utf-8")
    settings = {"postProcessing": "topN(2)", "labels": str(home / "labels.txt"), "legacyFilterText": True}
    with serving(home, redis_server, IDENTITY, **settings):
        yield home.name


def record(n: int, *, grey: int = 255, words: int = 1) -> dict[str, Any]:
    pixels = np.full((2, 2), grey, np.uint8)
    return {"n": n, "photo": cv2.imencode(".png", pixels)[1].tobytes(), "words": ["word"] * words}


def reason(answer: Any) -> tuple[str, str]:
    assert isinstance(answer, RecordFailed)
    return answer.code, answer.reason


def test_own_code_before_and_after_the_model_fails_for_single_records(custom: tuple[InputQueue, Path]) -> None:
    queue, calls = custom
    calls.write_text("")
    requests = [
        record(0),
        {"n": 1, "photo": b"no photo", "words": ["word"]},
        record(2, grey=0),
        record(3, words=2),
        {"n": 4, "photo": record(4)["photo"]},
        record(5, words=13),
        record(6, words=6),
        record(7) | {"photo": cv2.imencode(".png", np.zeros((3, 2), np.uint8))[1].tobytes()},
    ]

    answers: list[Any] = list(queue.predict_many(requests))

    assert answers[0] == {"mean": 1.0, "kind": "light"}
    assert reason(answers[1])[0] == ErrorCode.INVALID_INPUT
    assert reason(answers[1])[1].startswith("preprocess: TypeError: ")
    assert reason(answers[1])[1].endswith("(steps.py, line 18)")
    assert answers[2] == {"mean": 0.0, "kind": "dark"}
    double, text = answers[3]
    assert (double, double.dtype, double.shape, text) == (4.0, np.float32, (), ["two"])
    assert reason(answers[4]) == (ErrorCode.INVALID_INPUT, "preprocess: KeyError: 'words' (steps.py, line 18)")
    assert reason(answers[5]) == (ErrorCode.INFERENCE_FAILED, "ValueError: 13 is no weight")
    assert reason(answers[6])[0] == ErrorCode.INFERENCE_FAILED
    assert reason(answers[6])[1] == "postprocess: ValueError: 6.0 is too much (steps.py, line 23)"
    assert reason(answers[7])[0] == ErrorCode.INVALID_INPUT
    assert "takes float32 [2,2] a record, not float64 [3, 2]" in reason(answers[7])[1]
    assert sorted(calls.read_text().split()) == list("01234567"), (
        "each record is preprocessed once, also beside failing ones"
    )


def test_a_preprocess_that_kills_the_worker_fails_alone(custom: tuple[InputQueue, Path]) -> None:
    queue, _ = custom

    answers: list[Any] = list(queue.predict_many([record(10), record(99), record(11)], timeout=60))

    assert [answers[0], answers[2]] == [{"mean": 1.0, "kind": "light"}] * 2
    assert reason(answers[1])[0] == ErrorCode.WORKER_DIED


def test_own_code_answers_the_original_dialect(custom: tuple[InputQueue, Path], redis_server: PrivateRedis) -> None:
    name = custom[0].name
    photo = {"b64": base64.b64encode(record(0)["photo"])}
    with (
        InputQueue(port=redis_server.port, name=name, dialect="original") as queue,
        OutputQueue(port=redis_server.port, name=name) as output,
        redis_server.client() as client,
    ):
        queue.enqueue("one", n=np.array([20.0]), photo=photo, words=["a", "b", "c"])
        wait_until(lambda: output.query("one") != "[]", "the result")

        assert client.hget(f"cluster-serving_{name}:one", "value") == b'{"mean":3.0,"kind":"light"}'


def test_labels_stand_beside_the_indices(filtered: str, redis_server: PrivateRedis) -> None:
    with InputQueue(port=redis_server.port, name=filtered) as queue:
        assert queue.predict({"x": np.array([3, 2, 1, 4, 5], np.float32)}, timeout=60) == [
            [4, 5.0, None],
            [3, 4.0, "class 3"],
        ]
        whole = queue.predict({"x": np.array([[3, 2, 1, 4, 5], [9, 8, 0, 0, 0]], np.float32)}, timeout=60)

    assert whole == [[[4, 5.0, None], [3, 4.0, "class 3"]], [[0, 9.0, "class 0"], [1, 8.0, "class 1"]]]


def test_the_original_dialect_gets_the_originals_filter_text(filtered: str, redis_server: PrivateRedis) -> None:
    rows = {"pinned": [3, 2, 1, 4, 5], "odd": [1e7, 2.2538425e-4, 0, 0, 0], "none": [0, np.nan, np.inf, -np.inf, -1]}
    with (
        InputQueue(port=redis_server.port, name=filtered, dialect="original") as queue,
        OutputQueue(port=redis_server.port, name=filtered) as output,
        redis_server.client() as client,
    ):
        for uri, values in rows.items():
            queue.enqueue(uri, x=np.array(values, np.float32))
        wait_until(lambda: all(output.query(uri) != "[]" for uri in rows), "the results")
        texts = [client.hget(f"cluster-serving_{filtered}:{uri}", "value") for uri in rows]

        assert texts == [b"[[4,5.0][3,4.0]]", b"[[0,1.0E7][1,2.2538425E-4]]", b"[[2,Infinity][0,0.0]]"]
        assert output.query("pinned") == [[4, 5.0], [3, 4.0]]


@pytest.mark.parametrize(("batch", "settings"), [("4", {}), ("None", {}), ("None", {"inputAlreadyBatched": True})])
def test_text_and_whole_batches(
    redis_server: PrivateRedis, tmp_path: Path, batch: str, settings: dict[str, Any]
) -> None:
    texts = [f"{a:g} and {b:g}" for a, b in BATCH]
    with (
        serving(tmp_path, redis_server, DESCRIBE.replace("BATCH", batch), **settings),
        InputQueue(port=redis_server.port, name=tmp_path.name) as queue,
        InputQueue(port=redis_server.port, name=tmp_path.name, dialect="original") as original,
        OutputQueue(port=redis_server.port, name=tmp_path.name) as output,
    ):
        y, text = queue.predict({"x": BATCH}, timeout=60)
        np.testing.assert_array_equal(y, 2 * BATCH)
        assert text == texts

        y, text = queue.predict({"x": BATCH[1:2]}, timeout=60)
        assert (y.tolist(), text) == ([[4, 6]], [texts[1]])

        one_by_one: list[Any] = list(queue.predict_many({"x": values} for values in BATCH))
        for row, (y, text) in enumerate(one_by_one):
            assert (y.tolist(), text) == ((2 * BATCH[row]).tolist(), texts[row])

        original.enqueue("old", x=BATCH)
        wait_until(lambda: output.query("old") != "[]", "the result")
        failed = output.query("old")
        assert isinstance(failed, Failed)
        assert failed.reason == "output 'text' is text, which cannot be sent in the original dialect"


def test_a_whole_batch_in_the_original_dialect(redis_server: PrivateRedis, tmp_path: Path) -> None:
    code = IDENTITY.replace("(None, 5)", "(4, 5)")
    batch = np.arange(35, dtype=np.float32).reshape(7, 5)
    with (
        serving(tmp_path, redis_server, code),
        InputQueue(port=redis_server.port, name=tmp_path.name, dialect="original") as queue,
        OutputQueue(port=redis_server.port, name=tmp_path.name) as output,
    ):
        queue.enqueue("whole", x=batch)
        wait_until(lambda: not isinstance(output.query("whole"), str), "the result")

        np.testing.assert_array_equal(output.query("whole"), batch)
