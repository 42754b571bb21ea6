"""From stream entries to what goes into a slot: binding, checks, conversions, and entries no client of ours would write."""

import base64
import json
import math
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from structlog.testing import capture_logs

from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.wire.original.encode import encode_record as encode_original
from cluster_serving.client.wire.original.values import SparseLayout
from cluster_serving.client.wire.tensors import encode_tensor
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.processing.model_input import Content
from cluster_serving.node.processing.options import DecodeOptions, LegacyClients
from cluster_serving.node.processing.records import text_row
from cluster_serving.node.reader.decoding import Record, RecordDecoder
from cluster_serving.node.ring.forecast import Forecast
from cluster_serving.node.ring.input_layout import Signature
from cluster_serving.node.ring.slot import BATCHED, BY_ORDER, LARGEST_MESSAGE, LEGACY, ORIGINAL
from support.stored import arrays

PREFIX = b"cluster-serving.reply_job:"
X = TensorSpec("x", "float32", (None, 2))
Y = TensorSpec("y", "int64", (None,))
TEXT = TensorSpec("words", "str", (None,))
TWO_TEXTS = TensorSpec("words", "str", (None, 2))
FREE = TensorSpec("x", "float32", (None, None))
Fields = list[bytes]


def decode(fields: Fields, *specs: TensorSpec, now_ms: float = 0, options: DecodeOptions | None = None) -> Record:
    return RecordDecoder(specs or (X,), PREFIX, options).decode(b"5-1", fields, now_ms)


def native(**values: Any) -> Fields:
    return encode_record("u", values)


def in_original(**values: Any) -> Fields:
    return [b"uri", b"u", b"data", encode_original(values).encode()]


def in_json(text: str) -> Fields:
    return [b"uri", b"u", b"serde", b"stream", b"data", text.encode()]


def unconverted(content: Content) -> memoryview | bytes:
    """Content that goes into a slot as it is."""
    assert not isinstance(content, np.ndarray)
    return content


def refusal(record: Record) -> str:
    assert record.error is not None
    assert record.error[0] == ErrorCode.INVALID_INPUT
    assert (record.signature, record.contents) == ((), ())
    return record.error[1]


def row(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def test_the_common_record_is_not_copied() -> None:
    decoder = RecordDecoder((X, Y), PREFIX)
    fields = [*native(x=row(1, 2), y=np.int64(3)), b"reply", PREFIX + b"c"]

    for _ in range(2):  # the second time by look-up
        record = decoder.decode(b"5-1", fields, 0)

        assert (record.uri, record.reply, record.flags) == (b"u", PREFIX + b"c", 0)
        assert record.signature == (("tensor", "<f4", (2,)), ("tensor", "<i8", ()))
        assert [array.tolist() for array in arrays(record)] == [[1, 2], 3]
        assert np.shares_memory(np.frombuffer(record.contents[0], np.uint8), np.frombuffer(fields[3], np.uint8))


def test_records_of_one_look_have_contents_of_their_own() -> None:
    decoder = RecordDecoder((X,), PREFIX)

    found = [arrays(decoder.decode(b"5-1", native(x=row(n, n + 1)), 0))[0].tolist() for n in range(5)]

    assert found == [[n, n + 1] for n in range(5)]


def test_a_known_header_with_missing_data_is_refused() -> None:
    decoder = RecordDecoder((X,), PREFIX)
    fields = native(x=row(1, 2))
    decoder.decode(b"5-1", fields, 0)

    record = decoder.decode(b"5-1", [*fields[:3], fields[3][:-1]], 0)

    assert refusal(record) == "the tensor is truncated: 7 bytes of data where float32 [2] has 8"


def test_bytes_behind_the_data_are_left_out() -> None:
    fields = native(x=row(1, 2))
    decoder = RecordDecoder((X,), PREFIX)

    for _ in range(2):
        (array,) = arrays(decoder.decode(b"5-1", [*fields[:3], fields[3] + b"padding"], 0))

        assert array.tolist() == [1, 2]


@pytest.mark.parametrize("values", [{"x": row(1, 2), "y": 3}, {"y": 3, "x": row(1, 2)}])
@pytest.mark.parametrize("encode", [native, in_original])
def test_inputs_bind_by_name(values: dict[str, Any], encode: Callable[..., Fields]) -> None:
    record = decode(encode(**values), X, Y)

    assert [array.ravel().tolist() for array in arrays(record)] == [[1, 2], [3]]


@pytest.mark.parametrize("encode", [native, in_original])
def test_other_names_bind_by_order_and_the_record_and_the_log_say_so(encode: Callable[..., Fields]) -> None:
    decoder = RecordDecoder((X, Y), PREFIX)
    with capture_logs() as logs:
        by_order = [
            decoder.decode(b"5-1", encode(**{a: row(1, 2), b: 3}), 0) for a, b in [("t0", "t1"), ("p", "q")] * 2
        ]
        by_name = decoder.decode(b"5-1", encode(y=3, x=row(1, 2)), 0)

    for record in (*by_order, by_name):
        assert [array.ravel().tolist() for array in arrays(record)] == [[1, 2], [3]]
    assert [record.flags & BY_ORDER for record in (*by_order, by_name)] == [BY_ORDER] * 4 + [0]
    assert [(line["log_level"], line["record"], line["model"]) for line in logs] == [
        ("warning", "'t0', 't1'", "'x', 'y'")
    ]


@pytest.mark.parametrize("encode", [native, in_original])
def test_order_may_be_refused(encode: Callable[..., Fields]) -> None:
    options = DecodeOptions(may_order=False)

    record = decode(encode(t0=row(1, 2), t1=3), X, Y, options=options)

    assert refusal(record) == (
        "the record's inputs are 't0', 't1'; the model takes x float32 [N,2], y int64 [N]; bindInputs is name, and these "
        "are not the model's names"
    )
    assert decode(encode(y=3, x=row(1, 2)), X, Y, options=options).error is None
    assert decode(encode(t=row(1, 2)), X, options=options).error is None


NEAREST = "; 'z' is none of these, and the nearest is 'y'"


@pytest.mark.parametrize(
    ("names", "has"),
    [
        (["x"], ("'x'", "")),
        (["x", "y", "z"], ("'x', 'y', 'z'", NEAREST)),
        (["x", "z"], ("'x', 'z'", NEAREST)),  # a name that matches and one that does not: a mistake, not a position
        (["a"], ("'a'", "")),
        (["a", "b", "c"], ("'a', 'b', 'c'", "")),
        (["Y", "X"], ("'Y', 'X'", "; 'Y' is none of these, and the nearest is 'y'")),
    ],
)
@pytest.mark.parametrize("encode", [native, in_original])
def test_names_that_do_not_bind(names: list[str], has: tuple[str, str], encode: Callable[..., Fields]) -> None:
    record = decode(encode(**dict.fromkeys(names, row(1, 2))), X, Y)

    expected = f"the record's inputs are {has[0]}; the model takes x float32 [N,2], y int64 [N]{has[1]}"
    assert refusal(record) == expected


@pytest.mark.parametrize(
    "fields",
    [
        [*native(x=row(1, 2)), *native(x=row(3, 4))[2:]],
        [*native(x=row(1, 2)), b"image:x", b"jpeg"],
        [*native(x=[np.array([[0]]), row(1), np.array([2])]), *native(x=row(1, 2))[2:]],
        [b"uri", b"u", b"tensor:\xff", encode_tensor(row(1, 2)), b"tensor:\xfe", encode_tensor(row(3, 4))],
    ],
)
def test_an_input_has_one_value(fields: Fields) -> None:
    assert refusal(decode(fields)).startswith("the record has two values for input ")


def test_no_inputs() -> None:
    message = "the record's inputs are none; the model takes x float32 [N,2]"

    assert refusal(decode([b"uri", b"u"])) == message
    assert refusal(decode([b"uri", b"u", b"something", b"else"])) == message


@pytest.mark.parametrize(
    ("spec", "fields", "message"),
    [
        (X, native(x=row(1, 2, 3)), "input 'x' takes float32 [2] a record, not float32 [3]"),
        (X, native(x=np.zeros((2, 3))), "input 'x' takes float32 [2] a record, not float64 [2, 3]"),
        (X, native(x=np.zeros((0, 2))), "input 'x' takes float32 [2] a record, not float64 [0, 2]"),
        (X, native(x=5), "input 'x' takes float32 [2] a record, not int64 []"),
        (FREE, native(x=np.zeros((1, 3, 4))), "input 'x' takes float32 [?] a record, not float64 [1, 3, 4]"),
        (X, [b"uri", b"u", b"tensor:x", b"no"], "not a tensor message, or a truncated one: "),
        (X, [b"uri", b"u", b"bool:x", b"no"], "not a tensor message, or a truncated one: "),
        (X, native(x={"string": "s"}), "input 'x' takes float32 [N,2], not text"),
        (TEXT, native(words=row(1)), "input 'words' takes text, not a tensor of float32"),
        (TEXT, native(words=b"image"), "input 'words' takes text, not an image"),
        (TEXT, native(words=np.array([True])), "input 'words' takes text, not a tensor of bool"),
        (TEXT, [b"uri", b"u", b"string:words", b"[1"], "input 'words' is not JSON: "),
        (TEXT, [b"uri", b"u", b"string:words", b"\xff"], "input 'words' is not JSON: "),
        (TEXT, [b"uri", b"u", b"string:words", b"[" * 100_000], "input 'words' is not JSON: "),
        (X, [b"uri", b"u", b"sparse.values:x", b""], "a sparse tensor needs its indices, values and shape; the record has"),
        (X, [b"uri", b"u", b"tensor:x", b"", b"deadline", b"soon"], "the record's deadline is b'soon', not a whole number"),
        (X, [b"uri", b"u", b"data", b"no base64!"], "the record's data field is not base64, or is truncated: "),
        (X, [b"uri", b"u", b"data", b"AAAA"], "not an Arrow stream"),
        (X, in_original(x=row(1, 2, 3)), "input 'x' takes float32 [2] a record, not float32 [3]"),
        (X, in_original(x=["text", "more"]), "input 'x' takes float32 [N,2], not text"),
        (TEXT, in_original(words=row(1)), "input 'words' takes text, not a tensor of float32"),
    ],
)  # fmt: skip
def test_refusals_name_what_is_wrong(spec: TensorSpec, fields: Fields, message: str) -> None:
    record = decode(fields, spec)

    assert refusal(record).startswith(message)
    assert record.uri == b"u"


@pytest.mark.parametrize(
    ("dtype", "sent", "kept"),
    [
        ("float32", np.array([1, -2], np.int8), [1, -2]),
        ("float32", np.array([16777216, -16777216]), [16777216, -16777216]),
        ("float32", np.array([0.1, 1e-300], np.float64), [np.float32(0.1), 0]),  # rounding is what a float32 means
        ("float32", np.array([np.inf, 1], np.float64), [np.inf, 1]),
        ("float32", np.array([0.5, 2], np.float16), [0.5, 2]),
        ("float32", np.array([True, False]), [1, 0]),
        ("float16", np.array([0.1, 65504], np.float64), [np.float16(0.1), 65504]),
        ("float64", np.array([2**53, -1]), [2**53, -1]),
        ("int64", np.array([1.0, -3.0]), [1, -3]),
        ("int32", np.array([2**31 - 1, -(2**31)]), [2**31 - 1, -(2**31)]),
        ("uint8", np.array([0, 255], np.float32), [0, 255]),
        ("int8", np.array([True, False]), [1, 0]),
        ("bool", np.array([0.0, 1.0]), [False, True]),
        ("bool", np.array([True, False]), [True, False]),
        ("int64", np.array([2**63 - 1, 0], np.uint64), [2**63 - 1, 0]),
    ],
)
def test_values_that_a_dtype_can_hold(dtype: str, sent: NDArray[Any], kept: list[Any]) -> None:
    (array,) = arrays(decode(native(x=sent), TensorSpec("x", dtype, (None, 2))))

    assert array.dtype == np.dtype(dtype)
    assert array.tolist() == kept


@pytest.mark.parametrize(
    ("dtype", "sent", "lost"),
    [
        ("float32", np.array([0, 16777217]), "16777217 of int64"),
        ("float32", np.array([1e300, 0], np.float64), "1e+300 of float64"),
        ("float16", np.array([0, 70000], np.float32), "70000.0 of float32"),
        ("float16", np.array([0, 100_000]), "100000 of int64"),
        ("float64", np.array([2**53 + 1, 0]), "9007199254740993 of int64"),
        ("int64", np.array([0.5, 1]), "0.5 of float64"),
        ("int64", np.array([np.nan, 1]), "nan of float64"),
        ("int64", np.array([np.inf, 1]), "inf of float64"),
        ("int32", np.array([2**31, 0]), "2147483648 of int64"),
        ("int64", np.array([2**63, 0], np.uint64), "9223372036854775808 of uint64"),
        ("uint8", np.array([-1, 0]), "-1 of int64"),
        ("uint8", np.array([256, 0], np.int16), "256 of int16"),
        ("uint64", np.array([-1, 0], np.int8), "-1 of int8"),
        ("int64", np.array([2**64 - 1, 0], np.uint64), "18446744073709551615 of uint64"),
        ("uint32", np.array([0, -(2**31)], np.int32), "-2147483648 of int32"),
        ("bool", np.array([0, 2]), "2 of int64"),
        ("bool", np.array([0.5, 1]), "0.5 of float64"),
    ],
)
def test_values_that_would_be_lost(dtype: str, sent: NDArray[Any], lost: str) -> None:
    record = decode(native(x=sent), TensorSpec("x", dtype, (None, 2)))

    assert refusal(record) == f"input 'x' takes {dtype}, and {lost} would be lost in it"


def test_pi_is_rounded_and_an_integer_that_a_float_does_not_have_is_refused() -> None:
    """The rule of docs/records.md for conversions."""
    spec = TensorSpec("x", "float32", (None, 16))

    (array,) = arrays(decode(native(x=np.full(16, np.pi)), spec))
    refused = decode(native(x=np.full(16, 2**24 + 1)), spec)

    assert array.tolist() == [np.float32(np.pi)] * 16
    assert refusal(refused) == "input 'x' takes float32, and 16777217 of int64 would be lost in it"


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 2)])
def test_arrays_without_elements_are_converted_too(dtype: str, shape: tuple[int, ...]) -> None:
    spec = TensorSpec("x", dtype, (None,) * (len(shape) + 1))

    for sent in (np.zeros(shape, np.float64), np.zeros(shape, np.uint32), np.zeros(shape, np.bool_)):
        (array,) = arrays(decode(native(x=sent), spec))

        assert (array.dtype, array.shape) == (np.dtype(dtype), shape)


@pytest.mark.parametrize("sent", [np.ones(2), np.ones(2, np.float32), np.ones((2, 2))[:, 0]])
def test_a_converted_row_is_bytes_in_c_order(sent: NDArray[Any]) -> None:
    record = decode(native(x=sent))

    content = unconverted(record.contents[0])
    assert bytes(content) == row(1, 1).tobytes()
    assert memoryview(content).format == "B"


@pytest.mark.parametrize("encode", [native, in_original])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_a_batch_dimension_of_one_is_taken_off_and_remembered(
    encode: Callable[..., Fields], dtype: type[np.generic]
) -> None:
    record = decode(encode(x=np.array([[1, 2]], dtype)))

    assert record.flags & BATCHED
    assert record.signature == (("tensor", "<f4", (2,)),)
    assert arrays(record)[0].tolist() == [1, 2]


def test_an_array_of_one_beside_a_row_is_a_single_value() -> None:
    for write in (native, in_original):
        record = decode(write(x=row(1, 2), y=np.array([3])), X, Y)

        assert record.flags & BATCHED == 0
        assert [array.shape for array in arrays(record)] == [(2,), ()]


def test_an_array_of_one_by_itself_is_a_batch_in_the_native_dialect_only() -> None:
    assert decode(native(y=np.array([3])), Y).flags == BATCHED
    assert decode(in_original(y=np.array([3])), Y).flags == ORIGINAL
    assert decode(in_json('{"instances": [{"y": 3}]}'), Y).flags == ORIGINAL
    assert decode(in_original(words=["one"]), TensorSpec("words", "str", (None,))).flags == ORIGINAL


def test_a_batch_dimension_of_a_row_counts() -> None:
    record = decode(native(x=row(1, 2)[np.newaxis], y=np.array([3])), X, Y)

    assert record.flags == BATCHED
    assert [array.shape for array in arrays(record)] == [(2,), ()]


@pytest.mark.parametrize("write", [native, in_original])
def test_a_batch_of_several_rows_is_a_batch_by_itself(write: Callable[..., Fields]) -> None:
    record = decode(write(x=np.array([[1, 2], [3, 4], [5, 6]], np.float32)))

    assert record.signature == (("whole", "<f4", (3, 2)),)
    assert record.flags & BATCHED == 0
    assert arrays(record)[0].tolist() == [[1, 2], [3, 4], [5, 6]]


def test_all_inputs_of_a_record_are_batches_or_none_is() -> None:
    batch, number = np.zeros((3, 2), np.float32), np.int64(1)

    assert decode(native(x=batch, y=np.arange(3)), X, Y).signature == (("whole", "<f4", (3, 2)), ("whole", "<i8", (3,)))
    for y, rows in ((number, "3, None"), (np.arange(2), "3, 2")):
        assert f"the same number of rows, and they have {rows}" in refusal(decode(native(x=batch, y=y), X, Y))


JPEG = b"\xff\xd8\xff" + bytes(20)
UNKNOWN = TensorSpec("x", "float32", None)
UNKNOWN_CALL = TensorSpec("x", "float32", None, None)
CALLS = DecodeOptions(calls=True)


@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (1, 3, 2)])
def test_an_unknown_shape_takes_every_row(shape: tuple[int, ...]) -> None:
    record = decode(native(x=np.ones(shape, np.float32)), UNKNOWN)

    assert (record.signature, record.flags) == ((("tensor", "<f4", shape),), 0)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 2), (0, 2), (1, 3, 2)])
def test_a_call_is_taken_as_it_came(shape: tuple[int, ...]) -> None:
    record = decode(native(x=np.ones(shape, np.float32)), UNKNOWN_CALL, options=CALLS)

    assert (record.signature, record.flags) == ((("whole", "<f4", shape),), 0)
    assert arrays(record)[0].tolist() == np.ones(shape).tolist()


def test_a_call_has_the_dimensions_of_the_model() -> None:
    call = TensorSpec("x", "float32", (None, 2), None)

    assert decode(native(x=np.ones((1, 2), np.float32)), call, options=CALLS).signature == (("whole", "<f4", (1, 2)),)
    assert decode(native(x=np.ones((0, 2), np.float32)), call, options=CALLS).signature == (("whole", "<f4", (0, 2)),)
    assert "takes float32 [?,2] a record, not float32 [2]" in refusal(
        decode(native(x=np.ones(2, np.float32)), call, options=CALLS)
    )


def test_a_batch_of_one_shares_a_batch_unless_records_are_said_to_be_batches() -> None:
    row, one = native(x=np.ones(2, np.float32)), native(x=np.ones((1, 2), np.float32))

    assert (decode(one).signature, decode(one).flags) == ((("tensor", "<f4", (2,)),), BATCHED)
    assert (decode(one, options=CALLS).signature, decode(one, options=CALLS).flags) == ((("whole", "<f4", (1, 2)),), 0)
    assert decode(row, options=CALLS).signature == (("tensor", "<f4", (2,)),)


def test_texts_of_a_call_are_taken_as_they_came() -> None:
    call = TensorSpec("x", "str", (None, 1), None)

    assert decode(native(x=[["a"], ["b"]]), call, options=CALLS).signature == (("strings", "", ()),)
    assert "input 'x' takes str [?,1] a record" in refusal(decode(native(x=["a", "b"]), call, options=CALLS))


STATE = TensorSpec("s", "float32", (2, None, 3), 1)
RATE = TensorSpec("rate", "int64", (), None)


def state(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def test_rows_stand_along_the_batch_axis() -> None:
    row = decode(native(x=np.ones(2, np.float32), s=state(2, 3)), X, STATE)
    one = decode(native(x=np.ones((1, 2), np.float32), s=state(2, 1, 3)), X, STATE)
    four = decode(native(x=np.ones((4, 2), np.float32), s=state(2, 4, 3)), X, STATE)

    assert row.signature == one.signature == (("tensor", "<f4", (2,)), ("tensor", "<f4", (2, 3)))
    assert (row.flags, one.flags, four.flags) == (0, BATCHED, 0)
    assert four.signature == (("whole", "<f4", (4, 2)), ("whole", "<f4", (2, 4, 3)))


def test_only_equal_values_of_a_shared_input_share_a_batch() -> None:
    decoder = RecordDecoder((X, RATE), PREFIX)

    def signature(rate: int) -> Signature:
        return decoder.decode(b"5-1", native(x=np.ones(2, np.float32), rate=np.int64(rate)), 0).signature

    assert signature(8000) == signature(8000) != signature(16000)
    batch = decoder.decode(b"5-1", native(x=np.ones((4, 2), np.float32), rate=np.int64(8000)), 0)
    assert batch.signature == (("whole", "<f4", (4, 2)), ("whole", "<i8", ()))


def test_a_text_that_is_shared_has_no_rows() -> None:
    language = TensorSpec("language", "str", (), None)
    batch = decode(native(x=np.ones((4, 2), np.float32), language=["en"]), X, language)

    assert batch.signature == (("whole", "<f4", (4, 2)), ("strings", "", ()))


def test_texts_stand_along_the_batch_axis() -> None:
    words = TensorSpec("x", "str", (2, None), 1)

    assert decode(native(x=[["a", "b", "c"], ["d", "e", "f"]]), words).signature == (("strings", "", ()),)
    one = decode(native(x=[["a"], ["b"]]), words)
    assert (one.signature, one.flags) == ((("string", "", ()),), BATCHED)
    assert text_row(words, [["a"], ["b"]]).tolist() == ["a", "b"]


def test_records_of_one_shared_value_are_decoded_together() -> None:
    decoder = RecordDecoder((X, RATE), PREFIX)
    entries = [native(x=np.full(2, at, np.float32), rate=np.int64(8)) for at in range(3)]
    first = decoder.decode(b"5-1", entries[0], 0)

    together = decoder.decode_alike([b"5-1", b"5-2", b"5-3"], entries, 0)

    assert together is not None
    assert together.signature == first.signature
    other = native(x=np.ones(2, np.float32), rate=np.int64(9))
    assert decoder.decode_alike([b"5-1", b"5-2"], [entries[0], other], 0) is None


@pytest.mark.parametrize("write", [native, in_original])
def test_a_model_of_any_number_of_inputs_takes_them_in_order(write: Callable[..., Fields]) -> None:
    decoder = RecordDecoder((), PREFIX)
    for values in ({"b": row(1), "a": row(2, 3)}, {"only": row(4)}):
        record = decoder.decode(b"5-1", write(**values), 0)

        assert [array.tolist() for array in arrays(record)] == [value.tolist() for value in values.values()]
    assert "the model takes one or more tensors" in refusal(decoder.decode(b"5-1", [b"uri", b"u"], 0))


def test_raw_records_keep_every_field() -> None:
    fields = [*native(a=row(1, 2), b={"string": "s"}, c=JPEG), b"deadline", b"99", b"reply", PREFIX + b"c"]

    record = RecordDecoder((X,), PREFIX, DecodeOptions(raw=True)).decode(b"5-1", fields, 0)

    assert record.signature == (("record", "", ()),)
    content = msgspec.msgpack.decode(unconverted(record.contents[0]))
    assert content == {b"tensor:a": encode_tensor(row(1, 2)), b"string:b": b'"s"', b"image:c": JPEG}


def test_raw_records_of_the_original_dialect_become_native_fields() -> None:
    sparse = [np.array([[0, 1]]), np.array([5.0, 7.0]), np.array([3])]
    fields = in_original(a=row(1, 2), b=["s", "t"], c={"b64": base64.b64encode(JPEG).decode()}, d=sparse)

    record = RecordDecoder((X,), PREFIX, DecodeOptions(raw=True)).decode(b"5-1", fields, 0)

    assert msgspec.msgpack.decode(unconverted(record.contents[0])) == {
        b"tensor:a": encode_tensor(row(1, 2)),
        b"string:b": b'["s", "t"]',
        b"image:c": JPEG,
        b"tensor:d": encode_tensor(row(5, 7, 0)),
    }


@pytest.mark.parametrize(("layout", "dense"), [("ndim-major", [[5, 0], [7, 0]]), ("nnz-major", [[7, 5], [0, 0]])])
@pytest.mark.parametrize("write", [native, in_original])
def test_square_sparse_indices_are_read_as_configured(
    layout: SparseLayout, dense: list[list[int]], write: Callable[..., Fields]
) -> None:
    sparse = [np.array([[0, 1], [0, 0]]), np.array([5.0, 7.0], np.float32), np.array([2, 2])]
    spec = TensorSpec("x", "float32", (None, 2, 2))

    (array,) = arrays(decode(write(x=sparse), spec, options=DecodeOptions(sparse_layout=layout)))

    assert array.tolist() == dense


def test_sparse_indices_with_a_row_a_value() -> None:
    sparse = {"indices": np.array([[0, 1], [1, 0], [1, 1]]), "values": row(5, 6, 7), "shape": np.array([2, 2])}
    fields = [b"uri", b"u"]
    for part, array in sparse.items():
        fields += [f"sparse.{part}:x".encode(), encode_tensor(array)]

    (array,) = arrays(decode(fields, TensorSpec("x", "float32", (None, 2, 2))))

    assert array.tolist() == [[0, 5], [6, 7]]


def tensor_before_0_9(uri: str, *shape: int) -> bytes:
    """Encode a tensor as `enqueue` of a development version between 0.8 and 0.9 did: the column has the name of the record."""
    kind = pa.struct([("data", pa.list_(pa.float32())), ("shape", pa.list_(pa.int32()))])
    column = pa.array([{"data": np.arange(math.prod(shape), dtype=np.float32)}, {"shape": shape}], kind)
    batch = pa.RecordBatch.from_arrays([column], names=[uri])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("version", get_args(LegacyClients))
def test_clients_before_0_9_are_read_where_wanted(version: LegacyClients) -> None:
    decoder = RecordDecoder((TensorSpec("x", "float32", (None, 2, 3)),), PREFIX, DecodeOptions(legacy=version))
    image = [b"uri", b"u", b"image", base64.b64encode(b"\xff\xd8\xff jpeg")]
    tensor = [b"uri", b"u", b"tensor", tensor_before_0_9("u", 2, 3)]
    data = [b"uri", b"u", b"data", tensor_before_0_9("u", 2, 3)]

    records = [decoder.decode(b"5-1", fields, 0) for fields in (image, tensor, data)]

    wanted = version != "off"
    flags = [ORIGINAL | LEGACY if wanted else 0] * 2 + [ORIGINAL | LEGACY if version == "nightly" else ORIGINAL]
    assert [record.flags for record in records] == flags
    assert [record.error is None for record in records] == [wanted, wanted, True]
    assert decoder.refuse(b"5-1", image, (ErrorCode.DELIVERED_TOO_OFTEN, "")).flags == flags[0]
    if wanted:
        assert (records[0].signature, records[0].contents) == ((("image", "", ()),), [b"\xff\xd8\xff jpeg"])
        assert [array.tolist() for array in arrays(records[1])] == [[[0, 1, 2], [3, 4, 5]]]


@pytest.mark.parametrize(
    ("field", "content", "message"),
    [
        (b"image", b"%%%", "the record's image field is not base64"),
        (b"tensor", b"%%%", "the record's data field is not base64"),
        (b"tensor", tensor_before_0_9("u", 5), "takes float32"),
    ],
)
def test_broken_records_of_clients_before_0_9_are_refused(field: bytes, content: bytes, message: str) -> None:
    decoder = RecordDecoder((X,), PREFIX, DecodeOptions(legacy="0.8"))

    assert message in refusal(decoder.decode(b"5-1", [b"uri", b"u", field, content], 0))


def test_an_encrypted_image_of_the_original_dialect_is_left_to_the_worker() -> None:
    sealed = base64.b64encode(bytes(range(40))).decode()
    image = TensorSpec("x", "float32", (None, 3, 4, 4))

    record = decode(in_original(x={"b64": sealed}), image, options=DecodeOptions(encrypted=True))

    assert (record.signature, record.contents) == ((("image", "", ()),), [sealed.encode()])
    assert "not text" in refusal(decode(in_original(x={"b64": sealed}), image))


@pytest.mark.parametrize("row_shape", [(), (1,), (1, 1, 1), (None,), (None, 1)])
@pytest.mark.parametrize("sent", [7, np.array([[7]]), np.array([7.0], np.float32)])
def test_a_single_number_fits_every_shape_of_one_element(row_shape: tuple[int | None, ...], sent: Any) -> None:
    record = decode(native(x=sent), TensorSpec("x", "float32", (None, *row_shape)))

    (array,) = arrays(record)
    assert array.size == 1
    assert array.ndim == len(row_shape)
    assert array.ravel()[0] == 7


def test_free_dimensions_keep_the_records_shape() -> None:
    decoder = RecordDecoder((FREE,), PREFIX)

    shapes = [decoder.decode(b"5-1", native(x=np.zeros(n, np.float32)), 0).signature[0][2] for n in (1, 5, 0, 5)]

    assert shapes == [(1,), (5,), (0,), (5,)]


def test_images_and_text_stay_as_they_are() -> None:
    record = decode(native(words=["a", "ü"], x=b"\xff\xd8\xff"), TWO_TEXTS, X)

    assert record.signature == (("string", "", ()), ("image", "", ()))
    assert [bytes(content) for content in record.contents] == [b'["a", "\\u00fc"]', b"\xff\xd8\xff"]


def test_bytes_for_an_input_of_text_that_takes_them() -> None:
    spec = TensorSpec("words", "str", (None,), takes_bytes=True)

    record = decode(native(words=b"\xff\xd8\xff"), spec)

    assert record.signature == (("image", "", ()),)
    assert [bytes(content) for content in record.contents] == [b"\xff\xd8\xff"]


def test_a_sparse_tensor_is_made_dense() -> None:
    values = [np.array([[0, 1], [2, 0]]), np.array([5, 6]), np.array([2, 3])]
    spec = TensorSpec("x", "float32", (None, 2, 3))

    for encode, flags in ((native, 0), (in_original, ORIGINAL)):
        record = decode(encode(x=values), spec)

        assert record.flags == flags
        assert arrays(record)[0].tolist() == [[0, 0, 5], [6, 0, 0]]


def test_sparse_indices_of_rank_one_may_be_flat() -> None:
    assert arrays(decode(sparse(np.array([1, 0]), row(5, 6), np.array([2]))))[0].tolist() == [6, 5]


def sparse(indices: NDArray[Any], values: NDArray[Any], shape: NDArray[Any]) -> Fields:
    parts = {b"sparse.indices:x": indices, b"sparse.values:x": values, b"sparse.shape:x": shape}
    return [b"uri", b"u", *[field for name, array in parts.items() for field in (name, encode_tensor(array))]]


INDICES, VALUES = np.array([[0, 1]]), row(5, 6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (sparse(INDICES, VALUES, np.array([3])), "input 'x' takes float32 [2] a record, not float32 [3]"),
        (sparse(INDICES, VALUES, np.array([1])), "sparse index [1] lies outside shape [1]"),
        (sparse(-INDICES, VALUES, np.array([2])), "sparse index [-1] lies outside shape [2]"),
        (sparse(INDICES[0, :1], VALUES, np.array([2])), "sparse indices of shape [1] for 2 values of a tensor of rank 1"),
        (sparse(INDICES, VALUES, np.array([-2])), "negative dimension in shape [-2]"),
        (sparse(INDICES, VALUES, np.array([1 << 40])), "a dense tensor of shape [1099511627776] has"),
        (sparse(INDICES, VALUES, np.array([2**64 - 1], np.uint64)), "a dense tensor of shape [18446744073709551615] has"),
        (sparse(INDICES, VALUES, np.array(2)), "input 'x': sparse indices and shape are integers, not int64 and int64 []"),
        (sparse(INDICES, VALUES, np.array([[2]])), "input 'x': sparse indices and shape are integers"),
        (sparse(INDICES, VALUES, np.array([2.0])), "input 'x': sparse indices and shape are integers, not int64 and float64 [1]"),
        (sparse(INDICES * 1.0, VALUES, np.array([2])), "input 'x': sparse indices and shape are integers, not float64 and"),
        (sparse(np.zeros((65, 0), int), VALUES[:0], np.zeros(65, int)), "shape of 65 dimensions"),
    ],
)  # fmt: skip
def test_sparse_tensors_that_are_none(fields: Fields, message: str) -> None:
    assert refusal(decode(fields)).startswith(message)


def test_the_original_dialect_of_a_web_server() -> None:
    record = decode(in_json(json.dumps({"instances": [{"y": 3, "x": [1, 2]}]})), X, Y)

    assert record.flags & ORIGINAL
    assert [array.ravel().tolist() for array in arrays(record)] == [[1, 2], [3]]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"instances": []}', '{"instances": [5]}', "[" * 100_000, "\x00"])
def test_json_of_a_web_server_that_is_wrong(text: str) -> None:
    record = decode(in_json(text))

    assert refusal(record)
    assert record.flags == ORIGINAL


def test_text_and_images_of_the_original_dialect() -> None:
    picture = b"\xff\xd8\xff\xe0" + bytes(20)

    record = decode(in_original(words=["a", "b"], x=picture), TWO_TEXTS, X)

    assert record.signature == (("string", "", ()), ("image", "", ()))
    assert [bytes(content) for content in record.contents] == [b'["a", "b"]', picture]


@pytest.mark.parametrize("encode", [native, in_original])
def test_a_deadline(encode: Callable[..., Fields]) -> None:
    fields = [*encode(x=row(1, 2)), b"deadline", b"1000"]

    assert decode(fields, now_ms=1000).error is None
    assert decode(fields, now_ms=1000).deadline_ms == 1000
    late = decode(fields, now_ms=1004)

    message = "the deadline had passed 4 ms before a node could take the record"
    assert late.error == (ErrorCode.DEADLINE_EXCEEDED, message)
    assert late.uri == b"u"


def test_a_record_whose_answer_would_come_after_its_deadline_is_refused() -> None:
    decoder = RecordDecoder((X,), PREFIX)
    fields = [*native(x=b"no tensor"), b"deadline", b"1400"]
    busy = Forecast(row_ms=10, ahead_ms=300, most_rows=8)  # of 400 ms to live, a batch of 8 takes 80

    error = decoder.decode(b"1000-1", fields, 1010, busy).error

    message = "the deadline is 390 ms away, and at this load an answer takes about 420 ms"
    assert error == (ErrorCode.DEADLINE_EXCEEDED, message)
    known = [*native(x=row(1, 2)), b"deadline", b"1400"]
    assert decoder.decode(b"1000-1", known, 1010, busy._replace(ahead_ms=200)).error is None


def test_a_deadline_is_seen_in_a_record_of_a_known_look() -> None:
    decoder = RecordDecoder((X,), PREFIX)
    fields = native(x=row(1, 2))
    decoder.decode(b"5-1", fields, 0)
    decoder.decode(b"5-1", [*fields, b"deadline", b"1000"], 0)

    assert decoder.decode(b"5-1", [*fields, b"deadline", b"1000"], 900).deadline_ms == 1000
    assert decoder.decode(b"5-1", [*fields, b"deadline", b"1000"], 2000).error is not None
    assert decoder.decode(b"5-1", [*fields, b"deadline", b"9" * 30], 2000).error is not None


TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(("field", "kept"), [(TRACE, TRACE), (b"x" * 256, b"x" * 256), (b"x" * 257, b""), (b"", b"")])
@pytest.mark.parametrize("encode", [native, in_original])
def test_a_trace_is_carried_along_as_far_as_it_is_short(
    encode: Callable[..., Fields], field: bytes, kept: bytes
) -> None:
    decoder = RecordDecoder((X,), PREFIX)

    for values in ({"x": row(1, 2)}, {"x": row(1, 2)}, {"x": row(1)}):  # the last one is refused
        assert decoder.decode(b"5-1", [*encode(**values), b"traceparent", field], 0).traceparent == kept

    assert decoder.decode(b"5-1", encode(x=row(1, 2)), 0).traceparent == b""


def test_a_late_record_keeps_its_trace() -> None:
    record = decode([*native(x=row(1, 2)), b"deadline", b"1000", b"traceparent", TRACE], now_ms=2000)

    assert record.error is not None
    assert record.traceparent == TRACE


def test_a_refused_record_keeps_its_name_its_way_back_and_its_trace() -> None:
    decoder = RecordDecoder((X,), PREFIX)
    error = (ErrorCode.DELIVERED_TOO_OFTEN, "why")

    fields = [b"uri", b"u", b"tensor:x", b"broken", b"reply", PREFIX + b"c", b"traceparent", TRACE]
    native_one = decoder.refuse(b"5-1", fields, error)
    original_one = decoder.refuse(b"5-2", [b"uri", b"", b"data", b"broken", b"reply", b"other"], error)

    assert native_one == Record(b"u", PREFIX + b"c", 0, (), (), error, 0, TRACE)
    assert original_one == Record(b"5-2", b"", ORIGINAL, (), (), error)


@pytest.mark.parametrize(
    "reply",
    [b"other_key", b"cluster-serving.reply_job", b"cluster-serving.reply_other:c", b"job", PREFIX + b"x" * 4096],
)
@pytest.mark.parametrize("warm", [False, True])
def test_a_reply_goes_to_a_reply_stream_of_the_job_only(reply: bytes, warm: bool) -> None:
    decoder = RecordDecoder((X,), PREFIX)
    if warm:
        decoder.decode(b"5-0", [*native(x=row(1, 2)), b"reply", PREFIX + b"c"], 0)

    record = decoder.decode(b"5-1", [*native(x=row(1, 2)), b"reply", reply], 0)

    assert refusal(record) == "the reply stream must begin with cluster-serving.reply_job:"
    assert record.reply == b"", "the answer goes to the result hash"


def test_an_error_is_answered_where_the_client_waits() -> None:
    record = decode([*native(x=row(1)), b"reply", PREFIX + b"c"])

    assert refusal(record)
    assert record.reply == PREFIX + b"c"


@pytest.mark.parametrize(
    ("fields", "size"), [([], 0), ([b"uri", b""], 0), ([b"uri", b"x" * 4097], 4097), ([b"uri", b"\xff" * 5000], 5000)]
)
def test_without_a_usable_uri_the_answer_is_under_the_entrys_id(fields: Fields, size: int) -> None:
    record = decode([*fields, b"tensor:x", encode_tensor(row(1, 2))])

    assert refusal(record) == f"the record's uri has {size} bytes, it must have 1 to 4096"
    assert record.uri == b"5-1"


@pytest.mark.parametrize("warm", [False, True])
def test_a_uri_is_text(warm: bool) -> None:
    """A client could not ask for its result."""
    decoder = RecordDecoder((X,), PREFIX)
    if warm:
        decoder.decode(b"5-0", native(x=row(1, 2)), 0)

    record = decoder.decode(b"5-1", [b"uri", b"\xff", b"tensor:x", encode_tensor(row(1, 2))], 0)

    assert refusal(record).startswith("the record's uri is not UTF-8: ")
    assert record.uri == b"5-1"


@pytest.mark.parametrize("uri", ["x" * 4096, "ü" * 2048, "\x00"])
def test_a_uri_of_every_length(uri: str) -> None:
    record = decode([b"uri", uri.encode(), b"tensor:x", encode_tensor(row(1, 2))])

    assert (record.uri, record.error) == (uri.encode(), None)


@pytest.mark.parametrize("name", ["\N{SNOWMAN}" * 3000, "x" * 100_000])
def test_messages_are_cut_by_bytes(name: str) -> None:
    record = decode([b"uri", b"u", b"image:" + name.encode(), b"", b"tensor:" + name.encode(), b""])

    assert 2000 < len(refusal(record).encode()) <= LARGEST_MESSAGE


def test_what_is_kept_of_field_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster_serving.node.reader.decoding._MAX_FIELD_MAPS", 10)
    decoder = RecordDecoder((X,), PREFIX)

    for n in range(35):
        for write in (native, in_original):
            record = decoder.decode(b"5-1", write(**{f"name {n}": row(1, 2)}), 0)

            assert record.error is None
        assert all(0 < len(vars(decoder)[kept]) <= 10 for kept in ("_field_maps", "_bindings"))


def test_what_is_kept_of_shapes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster_serving.node.processing.model_input._MAX_HEADERS", 10)
    decoder = RecordDecoder((FREE,), PREFIX)
    (taker,) = vars(decoder)["_inputs"]

    for n in range(35):
        for _ in range(2):
            (array,) = arrays(decoder.decode(b"5-1", native(x=np.full(n, n, np.float32)), 0))

            assert array.tolist() == [n] * n
    assert len(vars(taker)["_known"]) == 10


QUICK = settings(derandomize=True, max_examples=150)
NAMES = st.sampled_from(
    [
        *(
            b"uri",
            b"reply",
            b"deadline",
            b"data",
            b"serde",
            b"tensor:x",
            b"bool:x",
            b"image:x",
            b"string:x",
            b"tensor:",
        ),
        *(b"sparse.indices:x", b"sparse.values:x", b"sparse.shape:x", b"tensor:\xff", b"other", b""),
    ]
)
SMALL: st.SearchStrategy[NDArray[Any]] = st.sampled_from(
    [np.zeros(2), row(1, 2), np.array([[0, 1]]), np.array([2]), np.array(2), np.zeros((0, 2)), np.array([-1], np.int8)]
)
VALUES_OF_FIELDS = st.one_of(
    st.binary(max_size=30),
    SMALL.map(encode_tensor),
    SMALL.map(lambda array: encode_tensor(array)[:-1]),
    st.sampled_from([PREFIX + b"c", b"1000", b"stream", b'{"instances": [{"x": [1, 2]}]}', b"[1]"]),
    st.binary(max_size=20).map(base64.b64encode),
    st.just(encode_original({"x": row(1, 2)}).encode()),
)
DECODERS = [RecordDecoder(specs, PREFIX) for specs in ((X,), (FREE,), (TEXT,), (X, Y))]


def never_raises(fields: Fields) -> None:
    """And gives either an answer for the client or contents that fit the signature."""
    for decoder in DECODERS:
        record = decoder.decode(b"5-1", fields, 500)

        assert 0 < len(record.uri) <= 4096
        assert len(record.signature) == len(record.contents)
        for (kind, dtype, shape), content in zip(record.signature, record.contents, strict=True):
            if kind == "tensor":
                assert np.frombuffer(content, np.uint8).size == np.dtype(dtype).itemsize * np.prod(shape, dtype=int)
        assert record.error is not None or record.signature


@QUICK
@given(st.lists(st.tuples(NAMES, VALUES_OF_FIELDS), max_size=5))
def test_no_entry_raises(pairs: list[tuple[bytes, bytes]]) -> None:
    never_raises([part for pair in pairs for part in pair])


@QUICK
@given(st.data())
def test_no_damaged_message_raises(data: st.DataObject) -> None:
    whole = data.draw(
        st.sampled_from([native(x=row(1, 2)), in_original(x=row(1, 2)), sparse(INDICES, VALUES, np.array([2]))])
    )
    fields = [*whole, *data.draw(st.sampled_from([[], [b"reply", PREFIX + b"c"], [b"deadline", b"400"]]))]
    place = data.draw(st.sampled_from([at for at in range(3, len(fields), 2) if fields[at]]))
    message = bytearray(fields[place])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(message) - 1))
        message[at] = data.draw(st.integers(0, 255))
    fields[place] = bytes(message[: data.draw(st.integers(len(message) // 2, len(message)))])

    never_raises(fields)


def test_two_columns_in_a_batch_of_another_writer() -> None:
    """Plain numeric columns are scalars."""
    batch = pa.RecordBatch.from_pydict({"a": [1.5], "b": [2]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = base64.b64encode(sink.getvalue().to_pybytes())

    record = decode([b"uri", b"u", b"data", data], TensorSpec("p", "float32", (None,)), Y)

    assert [float(array.ravel()[0]) for array in arrays(record)] == [1.5, 2]
