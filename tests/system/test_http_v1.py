"""The REST API of TensorFlow Serving, by a real frontend before real nodes."""

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support.models import MODELS
from support.private_redis import private_redis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import running_node

PRICE = "a@price.{euro}"
"""A job may be called so."""
PRICE_PATH = urllib.parse.quote(PRICE, safe="")
JOBS: dict[str, dict[str, Any]] = {
    "affine": {"modelPath": "affine.py"},
    "iris": {"modelPath": "scores.py"},
    "best": {"modelPath": "scores.py", "postProcessing": "topN(2)"},
    PRICE: {"modelPath": "price.py"},
    "text": {"modelPath": "v2_text.py"},
    "whole": {"modelPath": "v2_whole.py", "inputAlreadyBatched": True},
}
ROW = [0.0, 0.0, 0.0, 5.0]


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFrontend]:
    home = tmp_path_factory.mktemp("v1")
    with ExitStack() as stack:
        server = stack.enter_context(private_redis(tmp_path_factory.mktemp("redis")))
        for number, (name, config) in enumerate(JOBS.items()):
            path = str(MODELS / config["modelPath"])
            node = running_node(home / str(number), server, **{**config, "modelPath": path, "jobName": name})
            stack.enter_context(node)
        yield stack.enter_context(running_frontend(home / "frontend", server, maxInstances=8))


def call(frontend: RunningFrontend, path: str, document: Any = None) -> tuple[int, Any]:
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(f"{frontend.url}/v1/models/{path}", body)  # noqa: S310 - our own http URL
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_rows_in_rows_out(frontend: RunningFrontend) -> None:
    found = call(frontend, "affine:predict", {"instances": [{"x": [1, 2, 3, 4]}, [0, 0, 0, 1]]})

    assert found == (
        200,
        {"predictions": [{"y": [3.0, 5.0, 7.0, 9.0], "total": 10.0}, {"y": [1.0, 1.0, 1.0, 3.0], "total": 1.0}]},
    )


def test_columns_in_columns_out(frontend: RunningFrontend) -> None:
    found = call(frontend, "affine/versions/1:predict", {"inputs": {"x": [[1, 2, 3, 4], [0, 0, 0, 1]]}})

    assert found == (200, {"outputs": {"y": [[3.0, 5.0, 7.0, 9.0], [1.0, 1.0, 1.0, 3.0]], "total": [10.0, 1.0]}})


def test_one_output_is_a_bare_value(frontend: RunningFrontend) -> None:
    assert call(frontend, f"{PRICE_PATH}:predict", {"instances": [[120, 3], [80, 2]]}) == (
        200,
        {"predictions": [510.0, 340.0]},
    )
    assert call(frontend, f"{PRICE_PATH}:predict", {"inputs": [[120, 3], [80, 2]]}) == (
        200,
        {"outputs": [510.0, 340.0]},
    )


@pytest.mark.parametrize("path", [f"{PRICE}:predict", f"{PRICE_PATH}%3Apredict"])
def test_any_name_of_a_job_fits_into_the_path(frontend: RunningFrontend, path: str) -> None:
    assert call(frontend, path, {"instances": [[120, 3]]}) == (200, {"predictions": [510.0]})


def test_bytes_are_text_for_a_model_of_text(frontend: RunningFrontend) -> None:
    encoded = base64.b64encode("grüß".encode()).decode()

    status, answer = call(frontend, "text:predict", {"instances": [{"b64": encoded}, "ab"]})

    assert status == 200
    assert answer["predictions"][0] == {"upper": "GRÜSS", "ends": ["g", "ß"], "length": 4}
    assert answer["predictions"][1] == {"upper": "AB", "ends": ["a", "b"], "length": 2}


def test_rows_are_one_batch_where_the_node_wants_batches(frontend: RunningFrontend) -> None:
    rows = [[1, 2], [3, 4]]

    assert call(frontend, "whole:predict", {"instances": rows}) == (200, {"predictions": [[1.0, 2.0], [4.0, 6.0]]})
    assert call(frontend, "whole:predict", {"inputs": rows}) == (200, {"outputs": [[1.0, 2.0], [4.0, 6.0]]})


def test_what_a_filter_left_is_the_prediction(frontend: RunningFrontend) -> None:
    status, answer = call(frontend, "best:predict", {"instances": [[1, 3, 2, 0]]})

    assert status == 200
    assert [pair[0] for pair in answer["predictions"][0]] == [1, 2]


@pytest.mark.parametrize(("job", "labels"), [("iris", ["0", "1", "2"]), ("best", ["1", "2"])])
def test_classify(frontend: RunningFrontend, job: str, labels: list[str]) -> None:
    status, answer = call(frontend, f"{job}:classify", {"examples": [{"x": [1, 3, 2, 0]}], "signature_name": "any"})

    assert status == 200
    assert [pair[0] for pair in answer["results"][0]] == labels
    assert max(answer["results"][0], key=lambda pair: float(pair[1]))[0] == "1"


def test_regress(frontend: RunningFrontend) -> None:
    document = {"context": {"x": [1, 0]}, "examples": [{"x": [120, 3]}, {}]}

    assert call(frontend, f"{PRICE_PATH}:regress", document) == (200, {"results": [510.0, 3.0]})


def test_what_is_infinite_is_null(frontend: RunningFrontend) -> None:
    assert call(frontend, f"{PRICE_PATH}:predict", {"instances": [[3e38, 3e38]]}) == (200, {"predictions": [None]})


def test_a_row_that_fails_fails_the_request(frontend: RunningFrontend) -> None:
    status, answer = call(frontend, "affine:predict", {"instances": [[1, 2, 3, 4], [-1, 0, 0, 0]]})

    assert status == 500
    assert answer["error"].startswith("row 1: ")
    assert "a row that raises" in answer["error"]


def test_the_state_of_a_model(frontend: RunningFrontend) -> None:
    state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}

    assert call(frontend, "affine") == (200, {"model_version_status": [state]})
    assert call(frontend, "affine/versions/1") == (200, {"model_version_status": [state]})


def test_what_a_model_takes_and_gives(frontend: RunningFrontend) -> None:
    status, answer = call(frontend, "affine/metadata")
    signature = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]

    assert status == 200
    assert answer["model_spec"] == {"name": "affine", "signature_name": "", "version": "1"}
    assert signature["inputs"]["x"] == {
        "dtype": "DT_FLOAT",
        "tensor_shape": {"dim": [{"size": "-1", "name": ""}, {"size": "4", "name": ""}], "unknown_rank": False},
        "name": "x",
    }
    assert signature["outputs"]["total"]["dtype"] == "DT_DOUBLE"
    assert call(frontend, "affine/versions/1/metadata") == (200, answer)


def test_a_model_with_a_filter_gives_the_answer_of_the_filter(frontend: RunningFrontend) -> None:
    _, answer = call(frontend, "best/metadata")
    outputs = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]["outputs"]

    assert [(name, output["dtype"]) for name, output in outputs.items()] == [("value", "DT_STRING")]


@pytest.mark.parametrize(
    ("path", "document", "status", "message"),
    [
        ("nothing:predict", {"instances": [ROW]}, 404, "Model Name: nothing"),
        ("nothing", None, 404, "Model Name: nothing"),
        ("nothing/metadata", None, 404, "Model Name: nothing"),
        ("affine/versions/7:predict", {"instances": [ROW]}, 404, "Model Version: 7"),
        ("affine/labels/stable:predict", {"instances": [ROW]}, 404, "no labels"),
        ("affine/labels/stable", None, 404, "no labels"),
        (":predict", {"instances": [ROW]}, 400, ":predict, :classify or :regress"),
        ("affine:guess", {"instances": [ROW]}, 400, ":predict, :classify or :regress"),
        ("affine", {"instances": [ROW]}, 400, ":predict, :classify or :regress"),
        ("affine:predict", {"instances": [ROW, [1]]}, 400, "row 1: input 'x'"),
        ("affine:predict", {"instances": [ROW] * 9}, 400, "at most 8"),
        ("affine:predict", {"instances": [{"b64": "YQ=="}]}, 400, "row 0: input 'x'"),
        ("affine:classify", {"examples": [{"x": ROW}]}, 400, "classify needs"),
        ("affine:regress", {"examples": [{"x": ROW}]}, 400, "regress needs"),
        ("affine:classify", {"instances": [ROW]}, 400, "the body has examples"),
    ],
)
def test_errors(frontend: RunningFrontend, path: str, document: Any, status: int, message: str) -> None:
    found, answer = call(frontend, path, document)

    assert found == status
    assert list(answer) == ["error"]
    assert message in answer["error"]
