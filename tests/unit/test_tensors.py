"""The native codec, against Arrow's own and against bytes that are no tensor."""

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire import tensors as wire
from cluster_serving.client.wire.result import Result, decode_result
from cluster_serving.client.wire.tensors import decode_tensor, encode_tensor, tensor_header, tensor_layout

QUICK = settings(derandomize=True, max_examples=150)
DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
SHAPES = [(), (1,), (7,), (2, 3), (0,), (2, 0, 3), (1, 1, 1, 1), (2, 1, 3, 1, 2)]
# Where the header of a (3, 5) float32 tensor has its strides and its shape: int64 each.
STRIDES_AT, SHAPE_AT = (112, 120), (192, 160)


def arrow_message(array: NDArray[Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(array), sink)
    return bytes(sink.getvalue().to_pybytes())


def array_of(dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.random.default_rng(3).integers(0, 100, shape).astype(dtype)


def patched(shape: tuple[int, int], strides: tuple[int, int]) -> bytes:
    """A message of 15 floats whose header says something else."""
    message = bytearray(encode_tensor(np.arange(15, dtype=np.float32).reshape(3, 5)))
    assert [message[at] for at in (*SHAPE_AT, *STRIDES_AT)] == [3, 5, 20, 4]
    for at, number in zip((*SHAPE_AT, *STRIDES_AT), (*shape, *strides), strict=True):
        message[at : at + 8] = number.to_bytes(8, "little", signed=True)
    return bytes(message)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_dtype_and_shape_comes_back(dtype: str, shape: tuple[int, ...]) -> None:
    array = array_of(dtype, shape)

    for _ in range(2):  # the second time from the kept layout
        found = decode_tensor(encode_tensor(array))

        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_messages_are_those_of_arrow(dtype: str, shape: tuple[int, ...]) -> None:
    array = array_of(dtype, shape)

    ours, arrows = encode_tensor(array), arrow_message(array)

    assert arrows.startswith(ours)
    assert not any(arrows[len(ours) :]), "no more than padding"
    assert ours.startswith(tensor_header(array.dtype, shape))
    np.testing.assert_array_equal(pa.ipc.read_tensor(pa.BufferReader(ours)).to_numpy(), array)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
        np.arange(24, dtype=np.float64).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(20)[::-2],
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=">f8").reshape(2, 3)),
        np.broadcast_to(np.float32(7), (3, 4)),
        np.array(5, ">u2"),
    ],
)
def test_any_order_arrives_in_c_order_of_this_machine(array: NDArray[Any]) -> None:
    message = encode_tensor(array)

    found = decode_tensor(message)

    np.testing.assert_array_equal(found, array)
    assert found.dtype.isnative
    assert found.flags.c_contiguous
    assert tensor_layout(message) is not None


def test_a_fortran_message_of_another_writer_is_read() -> None:
    array = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    message = arrow_message(array)

    assert tensor_layout(message) is None
    np.testing.assert_array_equal(decode_tensor(message), array)
    with pytest.raises(CodecError, match="truncated"):
        decode_tensor(message[:-4])


def test_decoding_copies_nothing() -> None:
    message = encode_tensor(np.arange(100.0))

    found = decode_tensor(message)

    assert np.shares_memory(found, np.frombuffer(message, np.uint8))
    assert not found.flags.writeable


@QUICK
@given(hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)))
def test_any_array_comes_back(array: NDArray[Any]) -> None:
    found = decode_tensor(encode_tensor(array))

    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()


def test_bools_travel_as_bytes() -> None:
    """Arrow has no tensor of bools; the field's name says what it was."""
    array = np.array([[True, False], [False, True]])

    fields = [b"bool:mask", encode_tensor(array.view(np.uint8))]

    found = decode_result("u", fields).outputs["mask"]
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    "array",
    [
        np.array([None]),
        np.array(["text"]),
        np.array([b"text"]),
        np.zeros(2, np.complex128),
        np.zeros(2, np.longdouble),
        np.zeros(2, "M8[s]"),
        np.zeros(2, [("a", "f4")]),
    ],
)
def test_dtypes_without_a_tensor(array: NDArray[Any]) -> None:
    with pytest.raises(CodecError, match=r"an array of dtype .* cannot be sent"):
        encode_tensor(array)


@pytest.mark.parametrize("kept", [False, True])
def test_every_truncated_message_is_refused(kept: bool) -> None:
    message = encode_tensor(np.arange(5, dtype=np.float32))
    vars(wire)["_layouts"].clear()
    if kept:
        decode_tensor(message)

    for size in range(len(message)):
        with pytest.raises(CodecError, match="truncated"):
            decode_tensor(message[:size])


def test_a_truncated_message_says_what_is_missing() -> None:
    message = encode_tensor(np.zeros((2, 3), np.float32))
    decode_tensor(message)

    with pytest.raises(CodecError, match=r"^the tensor is truncated: 20 bytes of data where float32 \[2, 3\] has 24$"):
        decode_tensor(message[:-4])


def test_bytes_behind_the_data_do_not_matter() -> None:
    message = encode_tensor(np.arange(3)) + b"padding"

    assert decode_tensor(message).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"\xff" * 4,
        b"\xff" * 8,
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(64),
        b"\xff\xff\xff\xff\x10\x00\x00\x00" + bytes(16),
        bytes(64),
        b"text",
        pa.schema([("a", pa.int32())]).serialize().to_pybytes(),
        pa.RecordBatch.from_pydict({"a": [1]}).serialize().to_pybytes(),
    ],
)
def test_what_is_no_tensor(message: bytes) -> None:
    with pytest.raises(CodecError, match="not a tensor message, or a truncated one"):
        decode_tensor(message)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((1 << 40, 5), (20, 4)),
        ((-1, 5), (20, 4)),
        ((1 << 62, 1 << 62), (20, 4)),
        ((0, 1 << 62), (20, 4)),
        ((4, 5), (20, 4)),
        ((3, 5), (1 << 62, 4)),
        ((3, 5), (-20, 4)),
        ((1 << 20, 1 << 20), (0, 0)),
        ((1 << 62, 1 << 62), (0, 0)),
        ((1 << 20, 5), (0, 4)),
    ],
)
def test_headers_that_lie_about_the_size(shape: tuple[int, int], strides: tuple[int, int]) -> None:
    """Not an array that somebody would copy into terabytes, either."""
    with pytest.raises(CodecError):
        decode_tensor(patched(shape, strides))


def only_codec_errors(message: bytes) -> None:
    try:
        found = decode_tensor(message)
    except CodecError:
        return
    assert found.nbytes <= len(message)
    found.copy()


@QUICK
@given(st.binary(max_size=300))
def test_garbage(content: bytes) -> None:
    only_codec_errors(content)
    only_codec_errors(b"\xff\xff\xff\xff" + content)


@settings(derandomize=True, max_examples=400)
@given(st.data())
def test_a_damaged_message(data: st.DataObject) -> None:
    message = bytearray(encode_tensor(np.arange(15, dtype=np.float32).reshape(3, 5)))
    numbers = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([0, 1, 2, 3, -1, 1 << 31, 1 << 40]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(message) - 8))
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        message[at : at + width] = (data.draw(numbers) % (1 << 8 * width)).to_bytes(width, "little")

    only_codec_errors(bytes(message))


def test_kept_layouts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster_serving.client.wire.tensors._MAX_LAYOUTS", 10)
    layouts = vars(wire)["_layouts"]
    layouts.clear()

    for size in range(35):
        assert decode_tensor(encode_tensor(np.zeros(size))).shape == (size,)
        assert len(layouts) <= 10


def test_a_result_with_everything() -> None:
    arrays = {"b": np.arange(3.0), "a": np.array([1, 2], np.int8)}
    fields = [
        part for name, array in sorted(arrays.items()) for part in (b"tensor:" + name.encode(), encode_tensor(array))
    ]

    result = decode_result("u", [*fields, b"receipt", b'{"outputs": ["b", "a"]}', b"unknown", b"\xff"])

    assert list(result.outputs) == ["b", "a"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(result.outputs[name], array)
        assert result.outputs[name].flags.writeable, "the program's own"
    assert (result.uri, result.filtered, result.error) == ("u", None, None)


def test_outputs_without_a_receipt_stay_in_their_order() -> None:
    fields = [b"tensor:b", encode_tensor(np.zeros(1)), b"tensor:a", encode_tensor(np.ones(1))]

    assert list(decode_result("u", fields).outputs) == ["b", "a"]
    assert decode_result("u", fields).receipt is None


def test_a_result_that_is_a_value_or_an_error() -> None:
    value = decode_result("u", [b"value", b"[[1, 0.5]]"])
    error = decode_result("u", [b"error", b'{"code": "InvalidInput", "message": "why"}'])

    assert (value.value, value.filtered, value.outputs) == ([[1, 0.5]], [[1, 0.5]], {})
    assert error.error == ("InvalidInput", "why")


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (Result("u", {}, error=("C", "m")), "Result(uri='u', error=('C', 'm'))"),
        (Result("u", {}, [1]), "Result(uri='u', value=[1])"),
        (Result("u", {}, 0), "Result(uri='u', value=0)"),
        (Result("u", {"y": np.array([1])}), "Result(uri='u', outputs={'y': array([1])})"),
    ],
)
def test_a_result_shows_what_it_has(result: Result, shown: str) -> None:
    assert repr(result) == shown


PAIR = [b"tensor:a", encode_tensor(np.zeros(1)), b"tensor:b", encode_tensor(np.zeros(1))]


@pytest.mark.parametrize(
    "fields",
    [
        [b"tensor:y", b"no tensor"],
        [b"bool:y", b""],
        [b"value", b"[1"],
        [b"value", b"\xff"],
        [b"value", b"[" * 100_000],
        [b"error", b"NaN!"],
        [b"error", b"[]"],
        [b"error", b"5"],
        [*PAIR, b"receipt", b"["],
        [*PAIR, b"receipt", b"[]"],
        [*PAIR, b"receipt", b'{"outputs": 5}'],
        [*PAIR, b"receipt", b'{"outputs": ["a"]}'],
        [*PAIR, b"receipt", b'{"outputs": ["a", "c"]}'],
        [*PAIR, b"receipt", b'{"outputs": ["a", {}]}'],
    ],
)
def test_results_that_are_not_what_they_say(fields: list[bytes]) -> None:
    with pytest.raises(CodecError):
        decode_result("u", fields)


def test_a_broken_receipt_is_seen_when_it_is_asked_for() -> None:
    result = decode_result("u", [b"receipt", b"[]", b"value", b"1"])

    with pytest.raises(CodecError, match="the receipt is incomplete"):
        _ = result.receipt


@QUICK
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [b"tensor:y", b"tensor:z", b"bool:y", b"value", b"error", b"receipt", b"tensor:\xff", b"x"]
            ),
            st.one_of(
                st.binary(max_size=40),
                st.just(encode_tensor(np.arange(3))),
                st.recursive(
                    st.none() | st.integers() | st.text(max_size=3),
                    lambda inner: (
                        st.lists(inner, max_size=2)
                        | st.dictionaries(st.sampled_from(["code", "message", "outputs"]), inner)
                    ),
                ).map(lambda value: json.dumps(value).encode()),
            ),
        ),
        max_size=4,
    )
)
def test_garbage_results(pairs: list[tuple[bytes, bytes]]) -> None:
    with suppress(CodecError):
        decode_result("u", [part for pair in pairs for part in pair])
