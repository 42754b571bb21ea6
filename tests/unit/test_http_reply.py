import json
from typing import NamedTuple

import numpy as np
import pytest

from cluster_serving.client.errors import CodecError
from cluster_serving.client.http.reply import http_json_to_ndarray, http_response_to_ndarray, parse_prediction
from cluster_serving.client.wire.original.result import encode_result


class Response(NamedTuple):
    """A response of requests or httpx, as far as it is looked at."""

    status_code: int
    text: str


def element(data: list[float], shape: list[int]) -> str:
    return json.dumps({"data": data, "shape": shape})


@pytest.mark.parametrize(
    "text",
    [
        "{value=data=[0.5,-2.5E-4],shape=[1,2];}",
        json.dumps({"value": element([0.5, -2.5e-4], [1, 2])}),
        json.dumps(encode_result([np.array([[0.5, -2.5e-4]])]).decode()),
        encode_result([np.array([[0.5, -2.5e-4]])]).decode(),
    ],
)
def test_a_tensor_is_read_in_every_form(text: str) -> None:
    value = parse_prediction(text)

    assert isinstance(value, np.ndarray)
    assert value.dtype == np.float32
    assert value.tolist() == [[0.5, np.float32(-2.5e-4)]]


@pytest.mark.parametrize("text", ["{value=[[903,0.13]]}", '{"value":"[[903,0.13]]"}', '"[[903,0.13]]"'])
def test_a_filters_text_is_read_in_every_form(text: str) -> None:
    assert parse_prediction(text) == [[903, 0.13]]


@pytest.mark.parametrize("text", ["{value=NaN}", '{"value":"NaN"}', '"NaN"'])
def test_a_failed_record_is_read_in_every_form(text: str) -> None:
    assert parse_prediction(text) == "NaN"


@pytest.mark.parametrize(
    "text",
    [
        "{value=data=[1.0],shape=[1];data=[2.0,3.0],shape=[2];}",
        json.dumps({"value": element([1], [1]) + element([2, 3], [2])}),
    ],
)
def test_several_outputs_are_a_list(text: str) -> None:
    value = parse_prediction(text)

    assert isinstance(value, list)
    assert [output.tolist() for output in value] == [[1], [2, 3]]


@pytest.mark.parametrize(
    ("data", "shape", "value"),
    [
        (["a", "b"], [2], ["a", "b"]),
        (["a", "b"], [2, 1], [["a"], ["b"]]),
        (["a"], [], "a"),
        (["1.5"], [1], ["1.5"]),
    ],
)
def test_text_is_read_in_its_shape(data: list[str], shape: list[int], value: object) -> None:
    assert parse_prediction(json.dumps({"value": json.dumps({"data": data, "shape": shape})})) == value


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ([16777217, 1], "int64"),
        ([2**63], "uint64"),
        ([1, 2**64 - 1], "uint64"),
        ([True], "bool"),
        ([1, 2.5], "float32"),
        ([None, 1.5], "float32"),
    ],
)
def test_whole_numbers_stay_whole(data: list[float], kind: str) -> None:
    value = parse_prediction(json.dumps({"value": json.dumps({"data": data, "shape": [len(data)]})}))

    assert isinstance(value, np.ndarray)
    assert value.dtype == kind
    assert np.array_equal(value, np.array(data, kind), equal_nan=kind == "float32")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{broken", "not JSON"),
        ('{"other": 1}', "without the text 'value'"),
        ('{"value": "{\\"data\\""}', "not JSON"),
        ('{"value": "{} 1"}', "not JSON"),
        (json.dumps({"value": element([1], [1]) + "1"}), "not a series of JSON objects"),
        (json.dumps({"value": element([1, 2], [3])}), "2 elements and shape"),
        (json.dumps({"value": element([], [0, -1])}), "no elements and shape"),
        (json.dumps({"value": element([], [0, 2**70])}), "no elements and shape"),
        (json.dumps({"value": element([1], [1]) + '{"label": "cat"}'}), "no lists 'data' and 'shape'"),
        (json.dumps({"value": '{"data": ["a", 1], "shape": [2]}'}), "not numbers"),
        (json.dumps({"value": '{"data": [1], "shape": [1.5]}'}), "not of integers"),
        ("{value=data=[1.0;}", "not JSON"),
    ],
)
def test_a_broken_prediction_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(CodecError, match=sentence):
        parse_prediction(text)


def test_the_first_prediction_of_a_reply_is_read_as_float64() -> None:
    """The original's own test has 128 numbers in Java's float text."""
    text = '{"value":"{\\"data\\":[0.03932024,0.017788976,-2.2538425E-4],\\"shape\\":[3]}"}'

    value = http_json_to_ndarray(json.dumps({"predictions": [text, "second"]}))

    assert isinstance(value, np.ndarray)
    assert value.dtype == np.float64
    assert value.tolist() == [0.03932024, 0.017788976, -2.2538425e-4]


@pytest.mark.parametrize("body", ["[]", "{}", '{"predictions": []}', '{"predictions": [1]}'])
def test_a_body_without_predictions_is_refused(body: str) -> None:
    with pytest.raises(CodecError, match="no list of texts named 'predictions'"):
        http_json_to_ndarray(body)


def test_a_good_response_is_its_prediction() -> None:
    body = json.dumps({"predictions": [json.dumps({"value": element([1], [1])})]})

    assert np.array_equal(http_response_to_ndarray(Response(200, body)), [1.0])


def test_a_bad_request_prints_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert http_response_to_ndarray(Response(400, "")) == "[]"

    first, *example, last = capsys.readouterr().out.splitlines()
    assert first == "Invalid input format, valid example:"
    assert "instances" in json.loads("\n".join(example))
    assert last == "WARNING: Server returns invalid response, so you will get []"


def test_another_status_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert http_response_to_ndarray(Response(502, "")) == "[]"

    assert capsys.readouterr().out.splitlines() == [
        "Error when calling Cluster Serving Http server, error code: 502",
        "WARNING: Server returns invalid response, so you will get []",
    ]
