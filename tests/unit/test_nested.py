"""Sequences and maps, from the client to the model and back."""

from typing import Any

import msgspec
import numpy as np
import pytest

from cluster_serving.client.errors import CodecError, InvalidValue
from cluster_serving.client.wire.nested import decode_nested, encode_nested, is_nested
from cluster_serving.client.wire.values import encode_record


@pytest.mark.parametrize(
    "value",
    [
        [],
        None,
        {"a": 0.5, "b": [1, None]},
        {1: 0.25, 2: 0.75},
        [{"cat": 0.5}, {"dog": 1.0}],
        [np.arange(6, dtype=np.float16).reshape(2, 3), np.zeros((0, 2), np.int64), np.array(7, np.uint8)],
        [np.array([True, False]), np.array([["a", "ü"], ["", "b"]], object)],
        {"deep": [[np.float32(1)], [np.zeros(2)]]},
    ],
)
def test_a_nested_value_comes_back(value: Any) -> None:
    assert_same(decode_nested(encode_nested(value)), value)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"no tensor")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(3, b"[")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b"")),
    ],
)
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(CodecError, match="not a nested value"):
        decode_nested(content)


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(CodecError, match="a complex is neither an array nor a number nor text"):
        encode_nested([1j])
    with pytest.raises(InvalidValue, match="input 'x': a nested value cannot be sent"):
        encode_record("u", {"x": {"sequence": [object()]}})


@pytest.mark.parametrize("value", [{}, {"a": 1}, None, [np.zeros(2)], [["a"], [np.zeros(1)]], [1]])
def test_maps_and_lists_of_arrays_are_nested(value: Any) -> None:
    assert is_nested(value)


@pytest.mark.parametrize("value", ["a", [], ["a"], [["a", "b"], []], np.zeros(2), 3])
def test_text_and_arrays_are_not(value: Any) -> None:
    assert not is_nested(value)
