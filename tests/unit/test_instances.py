"""JSON instances to native fields: what each value of the grammar becomes, and what is refused before the queue."""

import base64
import json
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.tensors import decode_tensor
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.values.instances import encode_instance
from cluster_serving.frontend.values.json_values import Fields
from cluster_serving.node.processing.options import DecodeOptions
from cluster_serving.node.reader.decoding import RecordDecoder
from cluster_serving.node.ring.slot import BY_ORDER
from support.heartbeats import described

ROW = TensorSpec("x", "float32", (None, 3))
TABLE = TensorSpec("x", "float32", (None, 2, 2))
SCALAR = TensorSpec("x", "float32", (None,))
TEXT = TensorSpec("x", "str", (None,))
TEXTS = TensorSpec("x", "str", (None, 2))
IMAGE = TensorSpec("x", "uint8", (None, 3, None, None))
OPEN = TensorSpec("x", "float32", None)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(80)
PNG_TEXT = base64.b64encode(PNG).decode()


def job(*inputs: TensorSpec, raw: bool = False, already_batched: bool = False) -> Job:
    return Job("job", (described(inputs=inputs, raw=raw, already_batched=already_batched),))


def encoded(text: str, *inputs: TensorSpec, **options: bool) -> dict[bytes, bytes]:
    fields: Fields = encode_instance(orjson.loads(text), job(*inputs, **options))
    return dict(zip(fields[::2], fields[1::2], strict=True))


def tensor(text: str, spec: TensorSpec) -> NDArray[Any]:
    fields = encoded(text, spec)
    assert list(fields) == [b"tensor:x"]
    return decode_tensor(fields[b"tensor:x"])


def refusal(text: str, *inputs: TensorSpec, **options: bool) -> str:
    with pytest.raises(BadRequest) as caught:
        encoded(text, *inputs, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("spec", "text", "values"),
    [
        (ROW, "[1, 2.5, -3]", [1, 2.5, -3]),
        (ROW, "[1, 2, 3]", [1, 2, 3]),
        (ROW, "[[1, 2, 3]]", [[1, 2, 3]]),
        (ROW, "[[1, 2, 3], [4, 5, 6]]", [[1, 2, 3], [4, 5, 6]]),
        (ROW, "[true, false, 2]", [1, 0, 2]),
        (ROW, "[16777217, 0.1, 1e-300]", [16777216, np.float32(0.1), 0]),  # rounded: a number in JSON has no dtype
        (TABLE, "[[1, 2], [3, 4]]", [[1, 2], [3, 4]]),
        (SCALAR, "5", 5),
        (SCALAR, "[5]", [5]),
        (TensorSpec("x", "float32", (None, 1)), "5", 5),
        (TensorSpec("x", "float32", (None, None)), "[]", []),
        (TensorSpec("x", "float16", (None, 2)), "[0.1, 2049]", [np.float16(0.1), 2048]),
        (TensorSpec("x", "float64", (None, 2)), "[0.1, 9007199254740993]", [0.1, 9007199254740992]),
        (TensorSpec("x", "int64", (None, 2)), "[9223372036854775807, -9223372036854775808]", [2**63 - 1, -(2**63)]),
        (TensorSpec("x", "int64", (None, 2)), "[9007199254740993, 1.0]", [9007199254740993, 1]),
        (TensorSpec("x", "uint64", (None, 1)), "[18446744073709551615]", [2**64 - 1]),
        (TensorSpec("x", "int8", (None, 3)), "[-128, 127, 1.0]", [-128, 127, 1]),
        (TensorSpec("x", "uint8", (None, 2)), "[true, 255]", [1, 255]),
        (OPEN, "[[1], [2]]", [[1], [2]]),
    ],
)
def test_numbers_become_the_models_dtype(spec: TensorSpec, text: str, values: Any) -> None:
    found = tensor(f'{{"x": {text}}}', spec)

    assert found.dtype == spec.dtype
    assert found.tolist() == values


@pytest.mark.parametrize(
    ("spec", "text", "message"),
    [
        (ROW, "[1, 2]", "input 'x' takes float32 [3] a record, not float32 [2]"),
        (ROW, "5", "input 'x' takes float32 [3] a record, not float32 []"),
        (ROW, "[]", "input 'x' takes float32 [3] a record, not float32 [0]"),
        (ROW, "[[1, 2, 3], [4, 5]]", "input 'x' is a ragged list: lists of 2 and of 3 side by side"),
        (ROW, "[[1, 2, 3], 4]", "input 'x' is a ragged list: lists beside values that are not lists"),
        (ROW, "[1, 2, [3]]", "input 'x' is a ragged list: lists beside values that are not lists"),
        (ROW, "[1, null, 3]", "input 'x' holds null among numbers"),
        (ROW, "null", "input 'x' holds null among numbers"),
        (ROW, '[1, "2", 3]', "input 'x' holds text among numbers"),
        (ROW, '[1, {}, null]', "input 'x' holds an object and null among numbers"),
        (ROW, "[1, 2, 1e39]", "input 'x' takes float32, and 1e+39 of float64 would be lost in it"),
        (ROW, '["a", "b", "c"]', "input 'x' takes float32 [N,3], not lists of text"),
        (ROW, '["a", 1, "c"]', "input 'x' is a list of text and of values that are not text"),
        (ROW, '"text"', "input 'x' takes float32 [N,3], not an image, or text"),
        (ROW, f'"{PNG_TEXT}"', "input 'x' takes float32 [N,3], not an image, or text"),
        (ROW, "[" * 65 + "]" * 65, "input 'x' has lists nested in more than 64 levels"),
        (ROW, '{"a": 1}', "input 'x' is an object with 'a'; it needs the text 'b64', or the lists"),
        (ROW, '{"b64": 1}', "input 'x' is an object with 'b64'; it needs the text 'b64', or the lists"),
        (TensorSpec("x", "int64", (None, 1)), "[0.5]", "input 'x' takes int64, and 0.5 would be lost in it"),
        (TensorSpec("x", "int64", (None, 1)), "[9223372036854775808]", "9223372036854775808 of uint64 would be lost"),
        (TensorSpec("x", "int64", (None, 1)), "[-9223372036854775809]", "-9.223372036854776e+18 would be lost in it"),
        (TensorSpec("x", "int64", (None, 1)), "[1e300]", "1e+300 would be lost in it"),
        (TensorSpec("x", "int32", (None, 1)), "[2147483648]", "2147483648 of int64 would be lost in it"),
        (TensorSpec("x", "uint8", (None, 1)), "[-1]", "-1 of int64 would be lost in it"),
        (TensorSpec("x", "float16", (None, 1)), "[70000]", "70000.0 of float64 would be lost in it"),
        (TensorSpec("x", "bool", (None, 1)), "[2]", "2 of int64 would be lost in it"),
        (TEXT, "5", "input 'x' takes str [N], not numbers"),
        (TEXT, '{"shape": [1], "data": [1], "indices": [[0]]}', "input 'x' takes str [N], not a sparse tensor"),
        (TEXT, '{"b64": "/w=="}', "input 'x' takes text, and its 'b64' is not UTF-8"),
        (TEXTS, '["a", "b", "c"]', "input 'x' takes str [N,2], not text of shape [3]"),
        (TEXTS, '"a"', "input 'x' takes str [N,2], not text of shape []"),
        (IMAGE, '"no base64!"', "the image of input 'x' is not base64, or is truncated"),
        (IMAGE, '""', "input 'x' is an empty text"),
        (IMAGE, '"data:image/png;base64,"', "input 'x' is an empty text"),
        (IMAGE, '{"b64": "no!"}', "the 'b64' of input 'x' is not base64, or is truncated"),
    ],
)  # fmt: skip
def test_refusals_name_input_got_and_wanted(spec: TensorSpec, text: str, message: str) -> None:
    assert message in refusal(f'{{"x": {text}}}', spec)


@pytest.mark.parametrize("shape", [(None,), (None, 1)])
@pytest.mark.parametrize("text", ['{"b64": "/9j/"}', '[{"b64": "/9j/"}]'])
def test_bytes_for_an_input_of_text_that_takes_them(shape: tuple[int | None, ...], text: str) -> None:
    assert encoded(f'{{"x": {text}}}', TensorSpec("x", "str", shape, takes_bytes=True)) == {b"image:x": b"\xff\xd8\xff"}


def test_bools_stay_bools() -> None:
    fields = encoded('{"x": [true, false]}', TensorSpec("x", "bool", (None, 2)))

    assert decode_tensor(fields[b"bool:x"]).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("spec", "text", "strings"),
    [
        (TEXT, '"hello"', "hello"),
        (TEXT, f'"{PNG_TEXT}"', PNG_TEXT),
        (TEXT, '{"b64": "aGVsbG8="}', "hello"),
        (TEXT, '["a", "b"]', ["a", "b"]),
        (TEXTS, '["a|b", ""]', ["a|b", ""]),
        (TEXTS, '[["a", "b"], ["c", {"b64": "ZA=="}]]', [["a", "b"], ["c", "d"]]),
        (TensorSpec("x", "str", (None, 1)), '"ü"', "ü"),
        (OPEN, '"hello"', "hello"),
        (OPEN, '["a", "b"]', ["a", "b"]),
    ],
)
def test_text_is_text(spec: TensorSpec, text: str, strings: Any) -> None:
    assert json.loads(encoded(f'{{"x": {text}}}', spec)[b"string:x"]) == strings


@pytest.mark.parametrize("spec", [IMAGE, OPEN])
@pytest.mark.parametrize(
    "value",
    [PNG_TEXT, f"data:image/png;base64,{PNG_TEXT}", {"b64": PNG_TEXT}, f"{PNG_TEXT[:76]}\n{PNG_TEXT[76:]}\n"],
)
def test_base64_of_an_image_is_sent_as_its_bytes(spec: TensorSpec, value: object) -> None:
    assert encoded(json.dumps({"x": value}), spec) == {b"image:x": PNG}


def test_bytes_that_are_no_image_go_to_the_node_which_may_have_the_key_to_them() -> None:
    assert encoded('{"x": "c2VhbGVk"}', IMAGE) == {b"image:x": b"sealed"}


def test_an_uploaded_file_is_an_image() -> None:
    assert encode_instance({"x": PNG}, job(IMAGE)) == [b"image:x", PNG]


@pytest.mark.parametrize(
    "indices", [[[0, 1], [1, 2], [1, 0]], [[0, 1, 1], [1, 2, 0]]], ids=["a row for each value", "a row for each dimension"]
)  # fmt: skip
def test_sparse_tensors_keep_their_places_whichever_way_round(indices: list[list[int]]) -> None:
    text = json.dumps({"x": {"shape": [2, 3], "data": [1, 2.5, 3], "indices": indices}})
    fields = encoded(text, TensorSpec("x", "float32", (None, 2, 3)))

    assert decode_tensor(fields[b"sparse.indices:x"]).tolist() == [[0, 1, 1], [1, 2, 0]]
    assert decode_tensor(fields[b"sparse.values:x"]).tolist() == [1, 2.5, 3]
    assert decode_tensor(fields[b"sparse.shape:x"]).tolist() == [2, 3]


@pytest.mark.parametrize("layout", ["ndim-major", "nnz-major"])
def test_square_indices_are_rows_for_values_whatever_nodes_make_of_squares(layout: Any) -> None:
    spec = TensorSpec("x", "float32", (None, 2, 3))
    fields = encode_instance({"x": {"shape": [2, 3], "data": [5, 6], "indices": [[0, 2], [1, 0]]}}, job(spec))

    decoder = RecordDecoder([spec], b"reply", DecodeOptions(sparse_layout=layout))
    record = decoder.decode(b"1-1", [b"uri", b"u", *fields], 0)

    assert record.error is None
    assert np.frombuffer(record.contents[0], np.float32).tolist() == [0, 0, 5, 6, 0, 0]


def test_a_sparse_tensor_without_values() -> None:
    fields = encoded('{"x": {"shape": [3], "data": [], "indices": []}}', ROW)

    assert decode_tensor(fields[b"sparse.indices:x"]).shape == (1, 0)
    assert decode_tensor(fields[b"sparse.values:x"]).shape == (0,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"shape": [3], "data": [1], "indices": [[3]]}', "the sparse index [3] lies outside of the shape [3]"),
        ('{"shape": [3], "data": [1], "indices": [[-1]]}', "the sparse index [-1] lies outside of the shape [3]"),
        ('{"shape": [3], "data": [1, 2], "indices": [[1]]}', "indices of shape [1, 1] for 2 values of a sparse tensor of rank 1"),
        ('{"shape": [3], "data": [1], "indices": [[0.5]]}', "the indices of a sparse tensor are whole numbers"),
        ('{"shape": [3], "data": [[1]], "indices": [[1]]}', "the data of a sparse tensor are one list of numbers"),
        ('{"shape": [3], "data": ["a"], "indices": [[1]]}', "holds text among numbers"),
        ('{"shape": [], "data": [1], "indices": [[]]}', "the shape of a sparse tensor is a list of whole numbers above 0"),
        ('{"shape": [-3], "data": [1], "indices": [[1]]}', "the shape of a sparse tensor is a list of whole numbers above 0"),
        ('{"shape": [1.5], "data": [1], "indices": [[1]]}', "the shape of a sparse tensor is a list of whole numbers above 0"),
        ('{"shape": [4], "data": [1], "indices": [[1]]}', "input 'x' takes float32 [3] a record, not float32 [4]"),
        ('{"shape": [3000000000, 3], "data": [], "indices": []}', "would have more than 268435456 bytes"),
        ('{"shape": 3, "data": [], "indices": []}', "input 'x' is an object with 'shape', 'data', 'indices'"),
    ],
)  # fmt: skip
def test_broken_sparse_tensors(text: str, message: str) -> None:
    assert message in refusal(f'{{"x": {text}}}', ROW)


def test_names_of_the_model_bind_by_name() -> None:
    fields = encoded('{"y": 1, "x": [1, 2, 3]}', ROW, TensorSpec("y", "int64", (None,)))

    assert decode_tensor(fields[b"tensor:x"]).tolist() == [1, 2, 3]
    assert decode_tensor(fields[b"tensor:y"]).tolist() == 1


def test_one_input_goes_under_the_name_of_the_model() -> None:
    assert list(encoded('{"anything": [1, 2, 3]}', ROW)) == [b"tensor:x"]


@pytest.mark.parametrize("names", [("t0", "t1"), ("first", "second")])
def test_other_names_bind_by_order_and_stay_for_the_node_to_see(names: tuple[str, str]) -> None:
    first, second = names
    inputs = (ROW, TensorSpec("y", "int64", (None,)))
    fields = encode_instance({first: [1, 2, 3], second: 1}, job(*inputs))

    assert fields[::2] == [f"tensor:{name}".encode() for name in names]
    assert [decode_tensor(message).dtype for message in fields[1::2]] == [np.float32, np.int64]
    record = RecordDecoder(inputs, b"").decode(b"1-1", [b"uri", b"u", *fields], 0)
    assert (record.error, record.flags) == (None, BY_ORDER)


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ('{"x": 1}', "'x'"),
        ('{"a": 1, "b": 1, "c": 1}', "'a', 'b', 'c'"),
        ("{}", "none"),
    ],
)
def test_names_that_do_not_bind(text: str, has: str) -> None:
    expected = f"the record's inputs are {has}; the model takes x float32 [N,3], y int64 [N]"

    assert refusal(text, ROW, TensorSpec("y", "int64", (None,))) == expected


@pytest.mark.parametrize(
    "text", ['{"Y": 1, "X": [1, 2, 3]}', '{"x": [1, 2, 3], "Y": 1}', '{"y_": 1, "x:0": [1, 2, 3]}']
)
def test_names_that_are_like_the_models_are_refused_with_the_nearest(text: str) -> None:
    message = refusal(text, ROW, TensorSpec("y", "int64", (None,)))

    assert "is none of these, and the nearest is 'y'" in message


def test_a_message_names_no_more_than_a_reader_can_take_in() -> None:
    many = json.dumps({f"{number:0100}": 1 for number in range(1000)})

    message = refusal(many, ROW)

    assert len(message) < 2000
    assert "and 984 more" in message


@pytest.mark.parametrize("text", ["[1, 2, 3]", "5", '"text"', "null"])
def test_an_instance_is_an_object(text: str) -> None:
    assert refusal(text, ROW) == "it is not a JSON object that has a value for each input: x float32 [N,3]"


def test_records_for_the_users_own_preprocess_are_not_checked() -> None:
    text = json.dumps({"n": [1, 2], "f": 0.5, "b": True, "t": "a cat", "i": PNG_TEXT, "e": [], "u": [2**63]})

    fields = encoded(text, ROW, raw=True)

    arrays = {name: decode_tensor(value) for name, value in fields.items() if name.startswith((b"tensor:", b"bool:"))}
    assert {name: (array.dtype.name, array.tolist()) for name, array in arrays.items()} == {
        b"tensor:n": ("int64", [1, 2]),
        b"tensor:f": ("float64", 0.5),
        b"bool:b": ("uint8", 1),
        b"tensor:e": ("float64", []),
        b"tensor:u": ("uint64", [2**63]),
    }
    assert fields[b"string:t"] == b'"a cat"'
    assert fields[b"image:i"] == PNG


def test_a_model_that_takes_any_tensors_gets_float32_under_the_names_of_the_client() -> None:
    fields = encoded('{"a": [1, 16777217], "b": 2.5}')

    assert {name: decode_tensor(value).dtype.name for name, value in fields.items()} == {
        b"tensor:a": "float32",
        b"tensor:b": "float32",
    }


def test_the_tensors_of_a_call_have_the_dimensions_of_the_model() -> None:
    spec, scalar = TensorSpec("x", "float32", (None, 2), None), TensorSpec("x", "float32", (), None)

    assert decode_tensor(encoded('{"x": [[1, 2]]}', spec, already_batched=True)[b"tensor:x"]).tolist() == [[1, 2]]
    assert decode_tensor(encoded('{"x": 1}', scalar, already_batched=True)[b"tensor:x"]).tolist() == 1
    assert "takes float32 [?,2] a record" in refusal('{"x": [1, 2]}', spec, already_batched=True)


def test_long_names_are_not_kept() -> None:
    name = "n" * 100_000

    assert list(encoded(json.dumps({name: [1, 2, 3]}), ROW)) == [b"tensor:x"]


NUMBERS = st.one_of(
    st.integers(-(2**64), 2**65), st.integers(-3, 300), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
)
LEAVES = st.one_of(NUMBERS, st.text(max_size=5), st.none())
LISTS = st.recursive(st.one_of(NUMBERS, LEAVES), lambda inner: st.lists(inner, max_size=4), max_leaves=12)
SPARSE = st.fixed_dictionaries(
    {
        "shape": st.one_of(st.just([2, 2]), st.lists(st.integers(-1, 4), max_size=3)),
        "data": st.lists(NUMBERS, max_size=4),
        "indices": st.lists(st.lists(st.integers(-1, 3), max_size=3), max_size=4),
    }
)
SPECS = st.builds(
    TensorSpec,
    st.just("x"),
    st.sampled_from(["float16", "float32", "float64", "int8", "uint16", "int32", "int64", "uint64", "bool", "str"]),
    st.sampled_from([None, (None,), (None, 1), (None, 2), (None, None), (None, 2, 2), (4, 2)]),
)


@pytest.mark.slow
@settings(max_examples=1500)
@given(st.one_of(LISTS, LISTS, SPARSE, st.dictionaries(st.text(max_size=3), LEAVES)), SPECS, st.booleans())
def test_what_is_let_through_a_node_takes(value: Any, spec: TensorSpec, calls: bool) -> None:
    """Or it is refused before the queue, with nothing but a `BadRequest`; images and ragged text are a worker's business."""
    instance = orjson.loads(json.dumps({"x": value}))
    spec = msgspec.structs.replace(spec, batch_axis=None) if calls else spec
    try:
        fields = encode_instance(instance, job(spec, already_batched=calls))
    except BadRequest:
        return

    record = RecordDecoder([spec], b"reply", DecodeOptions(calls)).decode(b"1-1", [b"uri", b"u", *fields], 0)

    assert record.error is None or (fields[0] == b"string:x" and not spec.is_text), record.error


def test_more_inputs_than_any_model_has_are_not_looked_at() -> None:
    many = json.dumps(dict.fromkeys(map(str, range(1025)), 1))

    assert refusal(many, ROW) == refusal(many) == "it has 1025 inputs; at most 1024 are taken"
