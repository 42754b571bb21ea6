"""The REST API of TensorFlow Serving: what its JSON becomes, and what results become."""

import json
from typing import Any

import numpy as np
import pytest

from cluster_serving.client.errors import RecordFailed
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.bytes_in_text import text_of
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.tensors import decode_tensor
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.http.json_body import write
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.models.results import check_all
from cluster_serving.frontend.v1 import results
from cluster_serving.frontend.v1.requests import Rows, read_examples, read_predict
from support.heartbeats import described

X = TensorSpec("x", "float32", (None, 2))
FLAG = TensorSpec("flag", "int64", (None,))


def job(*inputs: TensorSpec, already_batched: bool = False) -> Job:
    node = described(job="my_job", backend="custom", inputs=inputs, already_batched=already_batched)
    return Job("my_job", (node,))


def predicted(document: Any, *inputs: TensorSpec) -> Rows:
    return read_predict(document, job(*(inputs or (X,))), 4)


def numbers(*arrays: Any) -> list[Result]:
    return [Result("", {"y": np.asarray(array)}) for array in arrays]


def floats(values: list[float]) -> Any:
    return np.array(values, np.float32)


def as_json(document: dict[str, Any]) -> Any:
    return json.loads(write(document), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "document",
    [
        {"instances": [{"x": [1, 2]}, {"x": [3, 4]}]},
        {"instances": [[1, 2], {"x": [3, 4]}]},
        {"inputs": {"x": [[1, 2], [3, 4]]}, "signature_name": "serving_default"},
        {"inputs": [[1, 2], [3, 4]]},
    ],
)
def test_rows_and_columns_are_a_record_a_row(document: dict[str, Any]) -> None:
    rows = predicted(document)

    records = rows.records(job(X))

    assert rows.columns == ("inputs" in document)
    assert [record[0] for record in records] == [b"tensor:x"] * 2
    assert [decode_tensor(record[1]).tolist() for record in records] == [[1, 2], [3, 4]]


def test_all_rows_are_one_record_where_inputs_are_batched_already() -> None:
    whole = job(X, already_batched=True)
    (record,) = read_predict({"instances": [[1, 2], [3, 4]]}, whole, 4).records(whole)

    assert decode_tensor(record[1]).tolist() == [[1, 2], [3, 4]]


def test_rows_of_one_batch_have_the_same_inputs() -> None:
    whole = job(X, already_batched=True)
    rows = read_predict({"instances": [{"x": [1, 2]}, {"y": [3, 4]}]}, whole, 4)

    with pytest.raises(BadRequest, match="row 1 has other inputs than row 0"):
        rows.records(whole)


def test_a_row_with_the_dimensions_of_the_model_is_a_call() -> None:
    calls = job(
        TensorSpec("x", "float32", (None, 2), None), TensorSpec("rate", "int64", (), None), already_batched=True
    )
    rows = read_predict({"instances": [{"x": [[1, 2]], "rate": 8}, {"x": [[3, 4], [5, 6]], "rate": 16}]}, calls, 4)

    found = [[decode_tensor(value).tolist() for value in record[1::2]] for record in rows.records(calls)]

    assert (rows.is_batch, found) == (False, [[[[1, 2]], 8], [[[3, 4], [5, 6]], 16]])


def test_the_columns_of_a_call_go_as_they_are() -> None:
    calls = job(
        TensorSpec("x", "float32", (None, 2), None), TensorSpec("rate", "int64", (), None), already_batched=True
    )
    rows = read_predict({"inputs": {"x": [[1, 2], [3, 4], [5, 6]], "rate": 8}}, calls, 1)

    [record] = rows.records(calls)

    assert [decode_tensor(value).tolist() for value in record[1::2]] == [[[1, 2], [3, 4], [5, 6]], 8]
    result = Result("u", {"y": np.zeros((2, 3), np.float32), "score": np.float32(2).reshape(())})
    assert results.outputs([result], batched=True)["outputs"]["score"] == 2


def test_columns_of_several_inputs() -> None:
    assert predicted({"inputs": {"x": [[1, 2], [3, 4]], "flag": [5, 6]}}, X, FLAG).rows == [
        {"x": [1, 2], "flag": 5},
        {"x": [3, 4], "flag": 6},
    ]


def test_bytes_are_a_value_and_not_a_row_of_inputs() -> None:
    assert predicted({"instances": [{"b64": "YQ=="}]}).rows == [{"x": {"b64": "YQ=="}}]
    assert predicted({"instances": [{"b64": [1]}]}, TensorSpec("b64", "float32", (None, 1))).rows == [{"b64": [1]}]


def test_bytes_are_the_text_of_an_input_of_text() -> None:
    words = TensorSpec("words", "str", (None,))

    (record,) = predicted({"instances": [{"b64": "aGFsbG8="}]}, words).records(job(words))

    assert record == [b"string:words", b'"hallo"']


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the body is a JSON object, not a list"),
        ({}, "either instances .* or inputs"),
        ({"instances": [[1, 2]], "inputs": [[1, 2]]}, "either instances .* or inputs"),
        ({"instances": []}, "instances is an empty list"),
        ({"instances": {"x": [1]}}, "instances is a list, not an object"),
        ({"instances": [[1, 2]] * 5}, "instances has 5 rows; at most 4"),
        ({"instances": [[1, 2]], "signature_name": 1}, "signature_name is text"),
        ({"instances": [[1, 2]], "callback": "https://a"}, "callback is not read from the body: .* header Callback"),
        ({"inputs": {}}, "inputs is an empty object"),
        ({"inputs": 1}, "input 'x' is a list, not a number"),
        ({"inputs": {"b64": "YQ=="}}, "input 'x' is a list, not an object"),
        ({"inputs": {"x": [[1, 2]], "flag": [1, 2]}}, "same number of rows.*x has 1, flag has 2"),
    ],
)
def test_what_is_wrong_with_a_body_is_said(document: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        predicted(document)


def test_an_input_may_be_named_callback() -> None:
    callback = TensorSpec("callback", "float32", ())

    assert predicted({"inputs": {"callback": [1]}}, callback).rows == [{"callback": 1}]
    assert predicted({"instances": [{"callback": 1}], "callback": None}, callback).rows == [{"callback": 1}]


def test_a_value_without_a_name_is_for_a_model_of_one_input() -> None:
    with pytest.raises(BadRequest, match="row 0 is a value without a name, and the model takes x, flag"):
        predicted({"instances": [[1, 2]]}, X, FLAG)


def test_a_row_that_the_model_does_not_take_is_named() -> None:
    with pytest.raises(BadRequest, match="row 1: input 'x' takes"):
        predicted({"instances": [[1, 2], [1, 2, 3]]}).records(job(X))


def test_examples_have_the_context() -> None:
    rows = read_examples(
        {"context": {"flag": 1}, "examples": [{"x": [1, 2]}, {"x": [3, 4], "flag": 0}]}, job(X, FLAG), 4
    )

    assert rows.rows == [{"x": [1, 2], "flag": 1}, {"x": [3, 4], "flag": 0}]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"instances": [[1, 2]]}, "the body has examples"),
        ({"examples": [[1, 2]]}, "example 0 is a JSON object, not a list"),
        ({"examples": [{}], "callback": "https://a"}, "callback is not read from the body"),
        ({"examples": [{}], "context": 1}, "context is a JSON object, not a number"),
    ],
)
def test_what_is_wrong_with_examples_is_said(document: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        read_examples(document, job(X, FLAG), 4)


def test_one_output_is_a_bare_value() -> None:
    found = numbers(floats([0.1, 0.2]), floats([0.3, 0.4]))

    assert as_json(results.predictions(found, False)) == {"predictions": [[0.1, 0.2], [0.3, 0.4]]}
    assert as_json(results.outputs(found, False)) == {"outputs": [[0.1, 0.2], [0.3, 0.4]]}


def test_several_outputs_have_names() -> None:
    found = [Result("", {"y": floats([row]), "total": np.array(float(row))}) for row in (1, 2)]

    assert as_json(results.predictions(found, False)) == {
        "predictions": [{"y": [1.0], "total": 1.0}, {"y": [2.0], "total": 2.0}]
    }
    assert as_json(results.outputs(found, False)) == {"outputs": {"y": [[1.0], [2.0]], "total": [1.0, 2.0]}}


def test_the_outputs_of_a_batch_are_a_value_for_each_row() -> None:
    (found,) = numbers([[1, 2], [3, 4]])

    assert as_json(results.predictions([found], True)) == {"predictions": [[1, 2], [3, 4]]}
    assert as_json(results.outputs([found], True)) == {"outputs": [[1, 2], [3, 4]]}


def test_the_outputs_of_a_batch_that_are_not_of_one_length_are_columns() -> None:
    found = [Result("", {"y": np.zeros((2, 1)), "mean": np.zeros(1)})]

    assert as_json(results.outputs(found, True)) == {"outputs": {"y": [[0.0], [0.0]], "mean": [0.0]}}
    with pytest.raises(BadRequest, match="ask with inputs"):
        results.predictions(found, True)


def test_numbers_that_json_has_not_are_null() -> None:
    assert as_json(results.predictions(numbers(floats([np.nan, np.inf, 1]), -np.inf), False)) == {
        "predictions": [[None, None, 1.0], None]
    }


def test_what_a_users_postprocess_made_is_the_prediction_whatever_it_is() -> None:
    value = {"large": 2**70, "odd": "\ud800", "none": [float("nan")]}

    assert as_json(results.predictions([Result("", {}, value)], False)) == {
        "predictions": [{"large": 2**70, "odd": "\ud800", "none": [None]}]
    }


def test_text_is_text_and_bytes_by_the_name_of_the_output() -> None:
    found = [Result("", {"words": ["a", "b"], "raw_bytes": ["a", text_of(b"\x89\xff")]})]

    assert as_json(results.predictions(found, False)) == {
        "predictions": [{"words": ["a", "b"], "raw_bytes": [{"b64": "YQ=="}, {"b64": "if8="}]}]
    }


@pytest.mark.parametrize(
    ("found", "pairs"),
    [
        (Result("", {}, [[903, 0.5], [3, 0.25]]), [["903", 0.5], ["3", 0.25]]),
        (Result("", {}, [[903, 0.5, "wig"], [3, 0.25, None]]), [["wig", 0.5], ["3", 0.25]]),
        (Result("", {"scores": floats([0.5, 0.25])}), [["0", 0.5], ["1", 0.25]]),
        (Result("", {"classes": ["wig", "cat"], "scores": floats([0.5, 0.25])}), [["wig", 0.5], ["cat", 0.25]]),
    ],
)
def test_classes_have_labels_and_scores(found: Result, pairs: list[list[Any]]) -> None:
    assert as_json(results.classes([found], False)) == {"results": [pairs]}


@pytest.mark.parametrize(
    "found", [Result("", {}, {"a": 1}), Result("", {"y": np.zeros(1), "z": np.zeros(1)}), Result("", {"words": "a"})]
)
def test_what_has_no_scores_is_not_classified(found: Result) -> None:
    with pytest.raises(BadRequest, match="classify needs"):
        results.classes([found], False)


def test_a_number_a_row_is_a_regression() -> None:
    assert as_json(results.numbers(numbers(np.float32(0.1), floats([2])), False)) == {"results": [0.1, 2.0]}


@pytest.mark.parametrize(
    "found",
    [Result("", {}, {"a": 1}), Result("", {"y": np.zeros(2)}), Result("", {"y": np.zeros(1), "z": np.zeros(1)})],
)
def test_what_is_not_one_number_a_row_is_no_regression(found: Result) -> None:
    with pytest.raises(BadRequest, match="regress needs"):
        results.numbers([found], False)


@pytest.mark.parametrize(("code", "status"), [("InvalidInput", 400), ("DeadlineExceeded", 504), ("WorkerDied", 500)])
def test_a_row_that_failed_fails_the_request(code: str, status: int) -> None:
    with pytest.raises(RecordFailed, match=rf"row 1: why \({code}\)") as raised:
        check_all([*numbers(1), Result("", {}, error=(code, "why"))])

    assert raised.value.http_status == status


@pytest.mark.parametrize(("array", "rows"), [(np.zeros((0, 2)), []), (np.array([[1.0], [2.0]]), [[1.0], [2.0]])])
def test_a_batch_may_give_no_rows(array: Any, rows: list[Any]) -> None:
    batch = [Result("", {"y": array})]

    assert as_json(results.predictions(batch, True)) == {"predictions": rows}
    assert as_json(results.outputs(batch, True)) == {"outputs": rows}
    assert len(results.classes(batch, True)["results"]) == len(results.numbers(batch, True)["results"]) == len(rows)


def test_rows_with_other_outputs_are_refused() -> None:
    with pytest.raises(BadRequest, match="row 0 has the outputs 'y', row 1 has a value of its own"):
        check_all([*numbers(1), Result("", {}, {"a": 1})])
