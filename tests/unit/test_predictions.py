"""Results as the texts of `predictions`, and back by our client and as the original's does it."""

import json
from typing import Any

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from cluster_serving.client.http.reply import http_json_to_ndarray, parse_prediction
from cluster_serving.client.wire.result import Result
from cluster_serving.frontend.values.predictions import prediction_text


def result(**outputs: Any) -> Result:
    return Result("u", outputs)


def as_the_original(text: str) -> NDArray[Any]:
    """`http_json_to_ndarray` of the original's client, from an element on."""
    value = json.loads(json.loads(text)["value"])
    return np.array(value["data"]).reshape(value["shape"])


def test_one_output() -> None:
    text = prediction_text(result(y=np.array([[0.1], [2]], np.float32)))

    assert text == r'{"value":"{\"data\":[0.1,2.0],\"shape\":[2,1]}"}'


def test_several_outputs_follow_one_another_without_separator() -> None:
    text = prediction_text(result(b=np.array([1.5]), a=np.array(2)))

    assert text == r'{"value":"{\"data\":[1.5],\"shape\":[1]}{\"data\":[2],\"shape\":[]}"}'


def test_what_a_filter_made() -> None:
    assert prediction_text(Result("u", {}, [[903, 0.13], [1, 0.1]])) == '{"value":"[[903,0.13],[1,0.1]]"}'


@pytest.mark.parametrize("value", [{"name": 'a "cat"', "p": 0.5}, "ü\ud800", 2**70, None, []])
def test_whatever_a_postprocess_made(value: Any) -> None:
    document = json.loads(orjson.loads(orjson.dumps(prediction_text(Result("u", {}, value)))))

    assert json.loads(document["value"]) == value


def test_a_record_that_failed() -> None:
    assert prediction_text(Result("u", {}, error=("InvalidInput", "why"))) == '{"value":"NaN"}'


@pytest.mark.parametrize(
    "array",
    [
        np.array([0.1, 1e-30, 3.4e38, -2.2538425e-4, 16777216], np.float32),
        np.array([0.1, 65504], np.float16),
        np.array([[0.1, 1e300]]),
        np.array(5.5),
        np.array([[2**63 - 1, -(2**63)]]),
        np.array([2**64 - 1], np.uint64),
        np.array([[True], [False]]),
        np.array([np.nan, 1, np.inf, -np.inf], np.float32),
        np.array([[np.nan]], np.float16),
        np.zeros((0, 3), np.float32),
    ],
)
def test_numbers_come_back_as_they_were(array: NDArray[Any]) -> None:
    back = as_the_original(prediction_text(result(y=array)))

    assert back.shape == array.shape
    assert np.array_equal(back.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")


def test_our_client_reads_numbers_that_are_not_finite() -> None:
    array = np.array([np.nan, 1, np.inf, -np.inf], np.float32)
    text = prediction_text(result(y=array))

    assert np.array_equal(parse_prediction(text), array, equal_nan=True)
    assert np.array_equal(http_json_to_ndarray(json.dumps({"predictions": [text]})), array, equal_nan=True)


@pytest.mark.parametrize("value", ["hello", ["a", 'b"\\'], [["ü", "\ud800"]]])
def test_text_comes_back_as_it_was(value: Any) -> None:
    assert parse_prediction(prediction_text(result(y=value))) == value


@pytest.mark.parametrize(
    "value",
    [
        {"label": "cat", "score": 0.9},
        {"data": [1.5], "shape": "round"},
        {"data": [1.5], "shape": [1], "label": "cat"},
        {"data": "text"},
        {},
        "a cat",
        'a "cat"',
        "NaN",
        "[[1,2]]",
        "5",
        0.9,
        5,
        2**70,
        True,
        None,
        [],
        ["see [1][2]"],
        [["cat", 0.5]],
        [["a][b", None], {"k": 1}],
    ],
)
def test_our_client_returns_whatever_a_postprocess_made(value: Any) -> None:
    found = parse_prediction(prediction_text(Result("u", {}, value)))

    assert type(found) is type(value)
    assert found == value


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0), (1, 0, 3)])
def test_an_output_without_elements_keeps_its_shape(shape: tuple[int, ...]) -> None:
    empty, full = np.zeros(shape, np.float32), np.ones(2, np.float32)

    alone = parse_prediction(prediction_text(result(y=empty)))
    beside = parse_prediction(prediction_text(result(y=empty, z=full)))

    assert isinstance(alone, np.ndarray)
    assert alone.shape == shape
    assert isinstance(beside, list)
    assert [output.shape for output in beside] == [shape, (2,)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([np.array([1.5]), np.array([2.0, 3.0])], [[1.5], [2.0, 3.0]]),
        ([{"cat": np.float32(0.5)}, {"dog": np.float32(1)}], [{"cat": 0.5}, {"dog": 1.0}]),
        ({"cat": np.array([0.5])}, {"cat": [0.5]}),
        (None, None),
    ],
)
def test_an_output_that_is_a_sequence_or_map(value: Any, expected: Any) -> None:
    assert parse_prediction(prediction_text(result(y=value))) == expected
    beside = parse_prediction(prediction_text(result(y=value, z=np.array([2.5]))))

    assert isinstance(beside, list)
    assert beside[0] == expected
    assert beside[1].tolist() == [2.5]


def test_text_beside_numbers() -> None:
    found = parse_prediction(prediction_text(result(label=["cat"], p=np.array([0.5]))))

    assert isinstance(found, list)
    assert found[0] == ["cat"]
    assert found[1].tolist() == [0.5]
