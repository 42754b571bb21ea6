"""Responses of the Open Inference Protocol, read by Triton's client."""

from typing import Any

import numpy as np
import pytest
from tritonclient.http import InferResult

from cluster_serving.client.errors import ErrorCode, RecordFailed
from cluster_serving.client.wire.bytes_in_text import text_of
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.tensors import Array
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.v2.asked import Asked, Wanted
from cluster_serving.frontend.v2.classification import classify
from cluster_serving.frontend.v2.datatypes import DTYPES
from cluster_serving.frontend.v2.outputs import joined
from cluster_serving.frontend.v2.response import encode_response

HEAD = {"model_name": "m", "model_version": "1"}


def read(outputs: dict[str, Any], asked: Asked) -> Any:
    """Return the result that Triton's client makes of a response with these outputs."""
    body, head_bytes = encode_response(HEAD, outputs, asked, batched=True)
    return InferResult.from_response_body(body, header_length=head_bytes)


def everything(binary: bool) -> Asked:
    return Asked("", (), binary, None)


def result(**outputs: Any) -> Result:
    return Result("u", outputs)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("datatype", [name for name in DTYPES if name not in ("BYTES", "BF16")])
def test_numbers_arrive_as_the_model_gave_them(datatype: str, binary: bool) -> None:
    array = np.arange(6).reshape(2, 3).astype(DTYPES[datatype])

    found = read({"y": array, "z": np.zeros((2, 0), np.float32)}, everything(binary))

    assert found.as_numpy("y").dtype == array.dtype
    np.testing.assert_array_equal(found.as_numpy("y"), array)
    assert found.get_output("y")["datatype"] == datatype
    assert found.as_numpy("z").shape == (2, 0)


def test_text_arrives_in_both_forms() -> None:
    texts = np.array([["grün", ""]], object)

    assert read({"y": texts}, everything(True)).as_numpy("y").tolist() == [["grün".encode(), b""]]
    assert read({"y": texts}, everything(False)).as_numpy("y").tolist() == [["grün", ""]]
    assert read({"y": np.array(["\ud800"], object)}, everything(False)).as_numpy("y").tolist() == ["?"]


def test_bytes_that_are_no_text_arrive_in_binary_and_are_refused_in_json() -> None:
    content = b"\x89PNG \xc3\xa9\xff"
    outputs = {"image_bytes": np.array([text_of(content)], object)}

    assert read(outputs, everything(True)).as_numpy("image_bytes").tolist() == [content]
    with pytest.raises(
        BadRequest, match="'image_bytes' holds bytes that are not UTF-8 text: ask for it with binary_data"
    ):
        read(outputs, everything(False))


def test_what_json_has_no_word_for_is_null() -> None:
    array = np.array([1.0, np.nan, np.inf], np.float32)

    assert read({"y": array}, everything(False)).get_output("y")["data"] == [1.0, None, None]
    np.testing.assert_array_equal(read({"y": array}, everything(True)).as_numpy("y"), array)


def test_the_outputs_asked_for_come_as_they_are_wanted() -> None:
    outputs = {"a": np.zeros(1), "b": np.ones(1), "c": np.array([[3.0, 5.0]])}
    asked = Asked("me", (Wanted("b", binary=True), Wanted("c", binary=False, classes=1)), False, None)

    found = read(outputs, asked)

    assert found.get_response()["id"] == "me"
    assert [output["name"] for output in found.get_response()["outputs"]] == ["b", "c"]
    assert found.get_output("b")["parameters"] == {"binary_data_size": 8}
    assert found.get_output("c") == {"name": "c", "datatype": "BYTES", "shape": [1, 1], "data": ["5.000000:1"]}


def test_outputs_that_are_not_there_are_refused() -> None:
    with pytest.raises(BadRequest, match="no output 'z'; the model gives 'a', 'b'"):
        read({"a": np.zeros(1), "b": np.zeros(1)}, Asked("", (Wanted("z", binary=True),), False, None))
    with pytest.raises(BadRequest, match="output 'a' is text, which has no classes"):
        read({"a": np.array(["x"], object)}, Asked("", (Wanted("a", binary=True, classes=1),), False, None))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float32])
def test_classes_come_highest_first_and_of_equal_ones_the_first(dtype: Any) -> None:
    scores = np.array([[0, 7, 7, 3], [9, 1, 2, 3]], dtype)

    found = [[text.replace(".000000", "") for text in row] for row in classify(scores, 3, batched=True)]

    assert found == [["7:1", "7:2", "3:3"], ["9:0", "3:3", "2:2"]]


def test_classes_of_extremes() -> None:
    assert classify(np.array([[-128, 127]], np.int8), 9, batched=True).tolist() == [["127:1", "-128:0"]]
    assert classify(np.array([0, 2**64 - 1], np.uint64), 1, batched=False).tolist() == [f"{2**64 - 1}:1"]
    assert classify(np.array([[False, True]]), 1, batched=True).tolist() == [["1:1"]]
    assert classify(np.array([[np.nan, 1.0]]), 2, batched=True).tolist() == [["1.000000:1", "nan:0"]]
    assert classify(np.zeros((2, 0)), 2, batched=True).shape == (2, 0)
    assert classify(np.array([4, 5]), 2, batched=True).tolist() == [["4:0"], ["5:0"]]
    assert classify(np.zeros((0, 4)), 2, batched=True).shape == (0, 2)
    assert classify(np.array(4.5), 2, batched=True).tolist() == ["4.500000:0"]


def test_rows_are_stacked() -> None:
    found = joined([result(y=np.array([1, 2]), t="a"), result(y=np.array([3, 4]), t="b")], stacked=True)

    assert {name: output.tolist() for name, output in found.items()} == {"y": [[1, 2], [3, 4]], "t": ["a", "b"]}
    alone = joined([result(y=np.array([1, 2]), t=["a"])], stacked=False)
    assert {name: output.tolist() for name, output in alone.items()} == {"y": [1, 2], "t": ["a"]}
    assert joined([result(y=np.array(1.5))], stacked=True)["y"].tolist() == [1.5]


def test_what_a_filter_made_is_one_text_a_row() -> None:
    found = joined([Result("u", {}, [[3, 0.5]]), Result("v", {}, [])], stacked=True)

    assert found["value"].tolist() == ["[[3,0.5]]", "[]"]
    assert joined([Result("u", {}, 10**30)], stacked=True)["value"].tolist() == [str(10**30)]


@pytest.mark.parametrize(
    ("code", "status"),
    [(ErrorCode.INVALID_INPUT, 400), (ErrorCode.DEADLINE_EXCEEDED, 504), (ErrorCode.WORKER_DIED, 500)],
)
def test_one_row_that_failed_fails_them_all(code: str, status: int) -> None:
    failed = Result("u", {}, error=(code, "why"))

    with pytest.raises(RecordFailed, match="row 1: why") as error:
        joined([result(y=np.zeros(1)), failed], stacked=True)
    assert error.value.http_status == status
    with pytest.raises(RecordFailed, match=rf"^why \({code}\)"):
        joined([failed], stacked=True)


def test_rows_that_no_tensor_holds_are_refused() -> None:
    with pytest.raises(BadRequest, match=r"the rows of output 'y' have different shapes, \[1\] and \[2\]"):
        joined([result(y=np.zeros(2)), result(y=np.zeros(1))], stacked=True)
    with pytest.raises(BadRequest, match=r"row 0 has the outputs 'y', row 1 has the outputs 'z', and one answer"):
        joined([result(y=np.zeros(1)), result(z=np.zeros(1))], stacked=True)
    with pytest.raises(BadRequest, match=r"row 1 has a value of its own"):
        joined([result(y=np.zeros(1)), Result("u", {}, 5)], stacked=True)


def test_outputs_need_not_be_contiguous() -> None:
    array: Array = np.arange(6, dtype=np.float32).reshape(2, 3).T

    for binary in (True, False):
        np.testing.assert_array_equal(read({"y": array}, everything(binary)).as_numpy("y"), array)
