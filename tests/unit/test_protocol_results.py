"""Requests that the queues send, and the meaning of replies."""

import base64
import copy
import fnmatch
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import keys
from cluster_serving.client.errors import InvalidValue, RecordFailed, Unreadable
from cluster_serving.client.protocol import results as commands
from cluster_serving.client.protocol.requests import as_inputs, check_dialect, request_fields
from cluster_serving.client.protocol.results import (
    Failed,
    escape_glob,
    plain,
    plain_or_error,
    plain_or_failed,
    result_of,
)
from cluster_serving.client.wire.original.decode import decode_record as decode_original
from cluster_serving.client.wire.original.result import encode_result as encode_original_result
from cluster_serving.client.wire.original.values import DenseTensor
from cluster_serving.client.wire.receipt import BatchReceipt
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.tensors import encode_tensor
from cluster_serving.node.processing.image import encode_png

ERROR = ("InvalidInput", "why")


def test_a_native_request() -> None:
    fields = request_fields("native", "u", {"x": np.zeros(2)})

    assert fields[::2] == [b"uri", b"tensor:x"]


def test_an_original_request() -> None:
    fields = request_fields("original", "u", {"x": np.array([1.0, 2])})

    assert fields[::2] == [b"uri", b"data"]
    ((name, value),) = decode_original(fields[3])
    assert name == "x"
    assert isinstance(value, DenseTensor)
    assert value.array.tolist() == [1, 2]


def test_dialects() -> None:
    assert [check_dialect("native"), check_dialect("original")] == ["native", "original"]
    with pytest.raises(InvalidValue, match="dialect is 'native' or 'original', not 'other'"):
        check_dialect("other")


@pytest.mark.parametrize("dialect", ["native", "original"])
def test_no_dialect_takes_an_empty_uri(dialect: str) -> None:
    with pytest.raises(InvalidValue, match="a uri has 1 to 4096 bytes"):
        request_fields(check_dialect(dialect), "", {"x": np.zeros(2)})


@pytest.mark.parametrize("request_data", [5, b"image", [1, 2], "cat.jpg", "[not json", ""])
def test_one_value_is_the_input_t(request_data: Any) -> None:
    assert as_inputs(request_data) == {"t": request_data}


def test_a_dict_is_the_inputs() -> None:
    inputs = {"a": 1, "b": "c.jpg"}

    assert as_inputs(inputs) is inputs


def test_json_text_of_the_original() -> None:
    png = base64.b64encode(encode_png(np.zeros((2, 2), np.uint8))).decode()
    instance = {"x": [[1, 2]], "n": 5, "text": "aGk=", "image": png, "also": {"b64": png}}
    found = as_inputs(json.dumps({"instances": [instance, {"x": "ignored"}]}))

    assert {name: found[name].tolist() for name in ("x", "n")} == {"x": [[1, 2]], "n": 5}
    assert found["text"] == {"string": "aGk="}
    assert found["image"] == base64.b64decode(png)
    assert found["also"] == {"b64": png}


@pytest.mark.parametrize("texts", [["a\0", "b"], [["a"], ["b"]]])
def test_lists_of_text_in_json_are_sent_as_they_are(texts: list[Any]) -> None:
    fields = request_fields("native", "u", as_inputs(json.dumps({"instances": [{"x": texts}]})))

    assert fields[2] == keys.STRING + b"x"
    assert json.loads(fields[3]) == texts


@pytest.mark.parametrize("mixed", [["a", 1], [1, "a"]])
def test_a_list_of_text_and_numbers_in_json_is_refused(mixed: list[Any]) -> None:
    with pytest.raises(InvalidValue, match="input 'x': a list of text holds 1, a int"):
        request_fields("native", "u", as_inputs(json.dumps({"instances": [{"x": mixed}]})))


def test_whole_numbers_in_json_stay_whole() -> None:
    numbers = [1, 2**63 + 1]

    found = as_inputs(
        json.dumps({"instances": [{"x": numbers, "y": {"shape": [2], "data": numbers, "indices": [[0], [1]]}}]})
    )

    assert found["x"].tolist() == found["y"][1].tolist() == numbers


def test_sparse_json_has_a_row_of_indices_for_each_value() -> None:
    sparse = {"shape": [4, 5], "data": [7, 8, 9], "indices": [[0, 1], [2, 3], [3, 4]]}

    found = as_inputs(json.dumps({"instances": [{"x": sparse}]}))

    assert [part.tolist() for part in found["x"]] == [[[0, 2, 3], [1, 3, 4]], [7, 8, 9], [4, 5]]


@pytest.mark.parametrize(
    "text",
    [
        *("5", "null", "[]", "{}", '{"instances": []}', '{"instances": {}}', '{"instances": 5}'),
        *('{"instances": [5]}', '{"instances": [[1]]}', '{"instances": {"x": 1}}', '{"other": [{}]}'),
    ],
)
def test_json_text_without_an_instance(text: str) -> None:
    with pytest.raises(InvalidValue, match="no instance can be found, please check your input or json"):
        as_inputs(text)


def test_json_text_that_is_malformed_is_no_path_of_an_image() -> None:
    with pytest.raises(InvalidValue, match="the request is not JSON: maximum recursion depth"):
        as_inputs('{"instances": [{"x": ' + 100_000 * "[")
    with pytest.raises(InvalidValue, match=r"the request is not JSON: Expecting .* line 1 column 2"):
        as_inputs("{'instances': []}")


def test_json_text_with_a_ragged_list_names_the_input() -> None:
    with pytest.raises(InvalidValue, match="input 'x': the nested list is ragged"):
        as_inputs('{"instances": [{"x": [[1], [1, 2]]}]}')


def test_a_native_result() -> None:
    receipt = BatchReceipt("n", "m", 0, 0, 3, 1.0, 2.0, 3.0, 4.0).of_record(b"1-0", 0.5, 1)

    result = result_of([b"tensor:y", encode_tensor(np.array([1, 2])), b"receipt", receipt.encode()], "u")

    assert (result.uri, result.receipt) == ("u", receipt)
    np.testing.assert_array_equal(plain(result), [1, 2])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (encode_original_result([np.array([1, 2], np.float32)]), [1, 2]),
        (b"[[1,0.5],[2,0.25]]", [[1, 0.5], [2, 0.25]]),
        (b"some text", "some text"),
    ],
)
def test_an_original_result(value: bytes, expected: Any) -> None:
    found = plain(result_of([b"value", value], "u"))

    assert (found.tolist() if isinstance(found, np.ndarray) else found) == expected


def test_an_original_result_with_several_outputs() -> None:
    value = encode_original_result([np.array([1], np.float32), np.array([2, 3], np.float32)])

    found = plain(result_of([b"value", value], "u"))

    assert [np.asarray(array).ravel().tolist() for array in found] == [[1], [2, 3]]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ([b"error", b'{"code": "C", "message": "m"}', b"receipt", b"{}"], ("C", "m")),
        ([b"value", b"NaN", b"error", b'{"code": "C", "message": "m"}'], ("C", "m")),
        ([b"value", b"NaN"], ("Unknown", "the record failed; this server does not say why")),
    ],
)
def test_a_failed_result_in_every_dialect(fields: list[bytes], error: tuple[str, str]) -> None:
    result = result_of(fields, "u")

    assert result.error == error
    assert result.outputs == {}


def test_what_a_program_gets() -> None:
    one, two = np.array([1]), np.array([2])

    for result, value in (
        (Result("u", {"y": one, "z": two}), [one, two]),
        (Result("u", {}, [[1, 0.5]]), [[1, 0.5]]),
        (Result("u", {}, 0), 0),
        (Result("u", {}), None),
    ):
        assert plain(result) == result.value == value
    assert plain(Result("u", {"y": one})) is Result("u", {"y": one}).value is one
    assert Result("u", {}, error=ERROR).value is None


def test_a_failure_in_three_shapes() -> None:
    failed = Result("u", {}, error=ERROR)

    with pytest.raises(RecordFailed, match=r"^u: why \(InvalidInput\)$") as caught:
        plain(failed)
    error, text = plain_or_error(failed), plain_or_failed(failed)

    assert isinstance(error, RecordFailed)
    assert isinstance(text, Failed)
    for each in (caught.value, error, text):
        assert (each.code, each.reason) == ERROR
    assert text == "NaN"
    assert caught.value.uri == "u"


def by_pickle(failure: Any) -> Any:
    return pickle.loads(pickle.dumps(failure))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("copied", [by_pickle, copy.copy, copy.deepcopy])
def test_a_failure_reaches_another_process_whole(copied: Callable[[Any], Any]) -> None:
    failed = copied(Failed("InvalidInput", "why"))
    errors = [copied(kind("InvalidInput", "why", "u")) for kind in (RecordFailed, Unreadable)]

    assert (type(failed), failed, failed.code, failed.reason) == (Failed, "NaN", "InvalidInput", "why")
    assert [*map(type, errors)] == [RecordFailed, Unreadable]
    assert {*map(str, errors)} == {"u: why (InvalidInput)"}
    assert [(error.code, error.reason, error.uri) for error in errors] == [("InvalidInput", "why", "u")] * 2


def test_what_did_not_fail_is_plain() -> None:
    fine = Result("u", {}, [1])

    assert plain_or_error(fine) == plain_or_failed(fine) == [1]


@pytest.mark.parametrize("text", ["plain", "a*b", "a?b", "[ab]", "a\\b", "^a", "cluster-serving_{j}*:"])
def test_a_glob_that_matches_only_this_text(text: str) -> None:
    escaped = escape_glob(text)

    assert escaped.replace("\\", "") == text.replace("\\", "")
    assert all(escaped[at - 1] == "\\" for at, character in enumerate(escaped) if character in "*?[]^")
    if "\\" not in escaped:
        assert fnmatch.fnmatchcase(text, escaped)


def test_keys_of_a_job() -> None:
    """Only results lie below the prefix that clients of the original scan and delete."""
    others = [keys.reply_key("j", "c"), keys.node_key("j", "n"), keys.limits_key("j"), "j"]

    assert keys.result_prefix("j") == "cluster-serving_j:"
    assert not [key for key in others if key.startswith("cluster-serving_j")]


def test_the_scripts_are_in_the_package() -> None:
    assert "DEL" in commands.DELETE.text
