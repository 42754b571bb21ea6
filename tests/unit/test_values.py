"""A program's values to request fields: every kind of value, and every refusal."""

import base64
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from cluster_serving.client.errors import InvalidValue
from cluster_serving.client.wire.tensors import decode_tensor
from cluster_serving.client.wire.values import encode_record

PICTURE = b"\xff\xd8\xff some JPEG"


def fields_of(value: Any) -> dict[bytes, bytes]:
    """The fields of a value for input `x`, without the uri."""
    fields = encode_record("u", {"x": value})
    assert fields[:2] == [b"uri", b"u"]
    return dict(zip(fields[2::2], fields[3::2], strict=True))


def only(value: Any, field: bytes) -> bytes:
    fields = fields_of(value)
    assert list(fields) == [field]
    return fields[field]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.arange(6, dtype=np.int16).reshape(2, 3), np.arange(6, dtype=np.int16).reshape(2, 3)),
        (np.zeros((0, 2), np.float16), np.zeros((0, 2), np.float16)),
        (np.ma.array([1.5, 2.0], mask=False), np.array([1.5, 2.0])),
        (np.float32(1.5), np.array(1.5, np.float32)),
        (np.arange(3, dtype=">u4"), np.arange(3, dtype=np.uint32)),
        (7, np.array(7)),
        (-1.5, np.array(-1.5)),
        ([1, 2, 3], np.array([1, 2, 3])),
        ([[1.0, 2], [3, 4]], np.array([[1.0, 2], [3, 4]])),
        ((1, 2), np.array([1, 2])),
        ([np.array([1]), np.array([2])], np.array([[1], [2]])),
        (2**64 - 1, np.array(2**64 - 1, np.uint64)),
        ([[0, 2**63 + 1], [1, 2**64 - 1]], np.array([[0, 2**63 + 1], [1, 2**64 - 1]], np.uint64)),
        ([np.uint64(2**64 - 1), 1], np.array([2**64 - 1, 1], np.uint64)),
        ([-1, 2**64 - 1], np.array([-1.0, 2.0**64])),
        ([0.5, 2**63], np.array([0.5, 2.0**63])),
    ],
)
def test_numbers_become_tensors(value: Any, expected: NDArray[Any]) -> None:
    found = decode_tensor(only(value, b"tensor:x"))

    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "value", [True, np.bool_(True), [True, False], np.array([[True], [False]]), np.asfortranarray(np.eye(3) > 0)]
)
def test_bools_become_bytes_that_say_so(value: Any) -> None:
    found = decode_tensor(only(value, b"bool:x"))

    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found.astype(bool), np.asarray(value))


@pytest.mark.parametrize(
    "value",
    [
        PICTURE,
        {"b64": base64.b64encode(PICTURE)},
        {"b64": base64.b64encode(PICTURE).decode()},
        {"image": PICTURE},
    ],
)
def test_bytes_are_an_image(value: Any) -> None:
    assert only(value, b"image:x") == PICTURE


def test_a_path_is_an_image_file(tmp_path: Path) -> None:
    file = tmp_path / "cat.jpg"
    file.write_bytes(PICTURE)

    assert only(str(file), b"image:x") == PICTURE
    assert only({"path": str(file)}, b"image:x") == PICTURE
    assert only({"path": file}, b"image:x") == PICTURE


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 1), (4, 5, 3), (4, 5, 4)])
def test_pixels_become_a_png_of_the_same(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, shape).astype(np.uint8)

    png = only({"image": pixels}, b"image:x")

    found = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED)
    assert png.startswith(b"\x89PNG")
    assert found is not None
    np.testing.assert_array_equal(found.reshape(shape), pixels)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"string": "grün"}, "grün"),
        ({"string": ""}, ""),
        (["a", "b"], ["a", "b"]),
        ([["a"], ["b"]], [["a"], ["b"]]),
        (("a", "b"), ["a", "b"]),
        (["a\0", "b"], ["a\0", "b"]),
        ([np.array(["a"]), np.array(["b"])], [["a"], ["b"]]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([["a", "ü"]], object), [["a", "ü"]]),
        (np.array("a"), "a"),
    ],
)
def test_text(value: Any, text: Any) -> None:
    assert json.loads(only(value, b"string:x")) == text


def test_a_long_text_beside_short_ones_takes_no_more_memory_than_its_own() -> None:
    texts = [*["short"] * 200, "x" * 100_000]

    tracemalloc.start()
    try:
        assert json.loads(only(texts, b"string:x")) == texts
        assert tracemalloc.get_traced_memory()[1] < 10 * 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.float64])
def test_three_arrays_are_a_sparse_tensor(dtype: type[np.generic]) -> None:
    indices, values, shape = np.array([[0, 1], [2, 0]], dtype), np.array([5, 6], np.float16), np.array([2, 3], dtype)

    fields = fields_of([indices, values, shape])

    found = [decode_tensor(content) for content in fields.values()]
    assert list(fields) == [b"sparse.indices:x", b"sparse.values:x", b"sparse.shape:x"]
    assert [array.dtype for array in found] == [np.int64, np.float16, np.int64]
    assert [array.tolist() for array in found] == [[[0, 1], [2, 0]], [5, 6], [2, 3]]


def test_a_sparse_tensor_without_values() -> None:
    fields = fields_of([np.empty((2, 0)), np.empty(0), np.array([2, 3])])

    assert decode_tensor(fields[b"sparse.indices:x"]).shape == (2, 0)


def test_inputs_keep_their_order_and_uris_their_bytes() -> None:
    fields = encode_record("grün", {"b": 1, "a": [1.5], "ü": ["t"]})

    assert fields[:2] == [b"uri", "grün".encode()]
    assert fields[2::2] == [b"tensor:b", b"tensor:a", "string:ü".encode()]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "a NoneType cannot be sent; expected an ndarray, a number, an image"),
        (object(), "a object cannot be sent"),
        (bytearray(b"a"), "a bytearray cannot be sent"),
        ({1, 2}, "a set cannot be sent"),
        (1j, "a complex cannot be sent"),
        ([], "empty list is not supported"),
        ([[], []], "empty list is not supported"),
        ([[1], [1, 2]], "the nested list is ragged"),
        ([["a"], ["a", "b"]], "the nested list of text is ragged"),
        (["a", ["b"]], "the nested list of text is ragged"),
        (["a", 1, True], "a list of text holds 1, a int; send only text, as str(value) makes it, or numbers as"),
        ([[True], ["a"]], "a list of text holds True, a bool; send only text"),
        (["a", b"b"], "a list of text holds b'b', a bytes; send only text"),
        (["a", None], "a list of text holds None, a NoneType; send only text"),
        (2**70, "an array of dtype object cannot be sent"),
        ([None], "an array of dtype object cannot be sent"),
        (np.array([b"a"]), "an array of dtype |S1 cannot be sent"),
        (np.array([1j]), "an array of dtype complex128 cannot be sent"),
        (np.array(["2020-01-01"], "M8[D]"), "an array of dtype datetime64[D] cannot be sent"),
        (
            np.ma.array([1.0, 2.0], mask=[False, True]),
            "an array with masked values cannot be sent: fill them, as numpy.ma.filled",
        ),
        ([np.array([[0]]), np.ma.array([1.0], mask=True), np.array([1])], "an array with masked values cannot be sent"),
        (np.zeros(1, np.longdouble), "an array of dtype float128 cannot be sent"),
        (b"", "empty bytes, or a dict with none of 'path' (file), 'b64' (text), 'image' (bytes or ndarray)"),
        ({}, "empty bytes, or a dict with none of"),
        ({"image": b""}, "empty bytes, or a dict with none of"),
        ({"image": "text"}, "empty bytes, or a dict with none of"),
        ({"b64": 5}, "empty bytes, or a dict with none of"),
        ({"string": 5}, "empty bytes, or a dict with none of"),
        ("/no/such/file", "cannot read the image '/no/such/file': [Errno 2]"),
        ("a\0b", "cannot read the image 'a\\x00b': "),
        ("/", "cannot read the image '/': [Errno 21]"),
        ({"path": 3.5}, "cannot read the image 3.5: "),
        ({"b64": "ab"}, "'b64' is not base64: "),
        ({"b64": "a b="}, "'b64' is not base64: "),
        ({"b64": "é"}, "'b64' is not base64: "),
        ({"image": np.zeros((2, 2))}, "an image is uint8 (height, width[, channels]), not float64 [2, 2]"),
        ({"image": np.zeros(4, np.uint8)}, "an image is uint8 (height, width[, channels]), not uint8 [4]"),
        ({"image": np.zeros((2, 2, 7), np.uint8)}, "OpenCV cannot encode this image"),
        ({"image": np.zeros((0, 2, 3), np.uint8)}, "OpenCV cannot encode this image"),
        ([np.array([["a"]]), np.ones(1), np.ones(1)], "the indices of a sparse tensor must be integers, not <U1"),
        ([np.array([[0.5]]), np.ones(1), np.ones(1)], "the indices of a sparse tensor must be integers, not float64"),
        ([np.array([[np.nan]]), np.ones(1), np.ones(1)], "the indices of a sparse tensor must be integers"),
        ([np.array([[0]]), np.ones(1), np.array([1.5])], "the shape of a sparse tensor must be integers"),
        ([np.array([[0]]), np.array([None]), np.array([1])], "an array of dtype object cannot be sent"),
    ],
)
def test_what_cannot_be_sent(value: Any, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        fields_of(value)

    assert str(caught.value).startswith(f"input 'x': {reason}")


def test_pixels_without_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)

    with pytest.raises(InvalidValue, match="run: pip install opencv-python-headless"):
        fields_of({"image": np.zeros((2, 2), np.uint8)})


def test_no_inputs() -> None:
    with pytest.raises(InvalidValue, match="record 'u' has no inputs"):
        encode_record("u", {})


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("", "a uri has 1 to 4096 bytes, this one has 0: ''"),
        ("x" * 4097, f"a uri has 1 to 4096 bytes, this one has 4097: '{'x' * 40}'"),
        ("ü" * 2049, f"a uri has 1 to 4096 bytes, this one has 4098: '{'ü' * 40}'"),
        ("a\ud800", "a uri must be valid Unicode text, not 'a\\ud800'"),
    ],
)
def test_what_is_no_uri(uri: str, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        encode_record(uri, {"x": 1})

    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize("uri", ["x", "x" * 4096, "ü" * 2048])
def test_uris_of_every_length(uri: str) -> None:
    assert encode_record(uri, {"x": 1})[1] == uri.encode()


@pytest.mark.parametrize("name", [1, b"x", "\udcff"])
def test_a_name_that_is_no_text_is_refused(name: object) -> None:
    with pytest.raises(InvalidValue, match="an input's name must be valid Unicode text, not"):
        encode_record("a", {name: np.ones(2, np.float32)})  # type: ignore[dict-item] # pyright: ignore[reportArgumentType]
