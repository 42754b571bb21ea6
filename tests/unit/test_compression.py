"""Compressed tensors: from the client's bytes back to the array, and nothing larger or older than allowed."""

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from cluster_serving.client import keys
from cluster_serving.client.wire.compression import CODECS, Codec, compress, restore
from cluster_serving.client.wire.tensors import decode_tensor, encode_tensor
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.processing.options import DecodeOptions
from cluster_serving.node.reader.decoding import Record, RecordDecoder
from support.stored import stored

PREFIX = b"cluster-serving.reply_job:"
X = TensorSpec("x", "float32", (None, 2, 3))
MASK = TensorSpec("mask", "bool", (None, 4))
ROOM = 1 << 20
ROW = np.arange(6, dtype=np.float32).reshape(2, 3)


def packed(codec: str, dtype: str, shape: list[int], values: bytes) -> bytes:
    """The content of a field, of any dtype and shape."""
    return msgspec.msgpack.encode((codec, dtype, shape, pa.compress(values, codec, asbytes=True)))


def decode(*fields: bytes, specs: tuple[TensorSpec, ...] = (X,), raw: bool = False, slot_bytes: int = ROOM) -> Record:
    return RecordDecoder(specs, PREFIX, DecodeOptions(raw=raw), slot_bytes).decode(b"5-1", [b"uri", b"u", *fields], 0)


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from(CODECS),
    hnp.arrays(
        st.sampled_from(["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]),
        hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
    ),
)
def test_arrays_come_back(codec: Codec, array: NDArray[Any]) -> None:
    kind, message = restore(compress(array, codec), ROOM)

    found = decode_tensor(message)
    found = found.astype(np.bool_) if kind == keys.BOOL else found
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (X, ROW),
        (X, ROW.astype(np.float16)),
        (X, ROW.astype(np.int64)[np.newaxis]),
        (MASK, np.array([True, False, True, True])),
        (TensorSpec("ids", "int64", (None, None)), np.arange(9)),
    ],
)
def test_a_node_reads_them_as_it_reads_plain_tensors(codec: Codec, spec: TensorSpec, value: NDArray[Any]) -> None:
    [_, _, *plain] = encode_record("u", {spec.name: value})
    compressed = [keys.COMPRESSED + spec.name.encode(), compress(value, codec)]

    assert stored(decode(*compressed, specs=(spec,))) == stored(decode(*plain, specs=(spec,)))


def test_own_code_gets_a_plain_tensor() -> None:
    [_, _, *plain] = encode_record("u", {"b": ROW, "a": {"string": "text"}})

    assert decode(keys.COMPRESSED + b"b", compress(ROW, "lz4"), *plain[2:], raw=True) == decode(*plain, raw=True)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shape", [[1 << 28], [1 << 14, 1 << 14], [0, 1 << 62], [1 << 62, 1 << 62]])
def test_a_bomb_is_not_decompressed(codec: str, shape: list[int]) -> None:
    record = decode(keys.COMPRESSED + b"x", packed(codec, "float32", shape, bytes(100)))

    assert record.error is not None
    assert record.error[1].startswith("input 'x': the compressed tensor of float32 ")
    assert "(slotBytes in config.yaml)" in record.error[1]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("count", "holds"), [(25, "more than 24"), (1 << 24, "more than 24"), (23, "23"), (0, "0")])
def test_a_tensor_of_another_size_than_it_says_is_refused(codec: str, count: int, holds: str) -> None:
    record = decode(keys.COMPRESSED + b"x", packed(codec, "float32", [2, 3], bytes(count)))

    assert record.error is not None
    assert f"holds {holds} bytes where float32 [2, 3] has 24" in record.error[1]


def test_tensors_of_a_record_share_the_room_of_a_slot() -> None:
    half = np.zeros(ROOM // 8, np.float32)
    fields = [part for name in (b"a", b"b", b"c") for part in (keys.COMPRESSED + name, compress(half, "zstd"))]

    record = decode(*fields, specs=())

    assert record.error is not None
    assert record.error[1].startswith("input 'b': the compressed tensor of float32 [131072] is too large")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "not a compressed tensor"),
        (b"\xc1", "not a compressed tensor"),
        (encode_tensor(ROW), "not a compressed tensor"),
        (packed("lz4", "float32", [-1], bytes(4)), "not a compressed tensor"),
        (
            packed("brotli", "float32", [2, 3], ROW.tobytes()),
            "compressed by 'brotli', and this release reads lz4 and zstd",
        ),
        (packed("lz4", "object", [1], bytes(8)), "and float64, not of 'object'"),
        (packed("lz4", "int8", [1] * 33, bytes(1)), "33 dimensions; at most 32 are read"),
        (compress(ROW, "lz4")[:-9], "not a compressed tensor"),
        (msgspec.msgpack.encode(("lz4", "float32", (2, 3), b"no frame")), "the compressed tensor is damaged"),
    ],
)
def test_damaged_content_is_answered_with_the_reason(content: bytes, sentence: str) -> None:
    record = decode(keys.COMPRESSED + b"x", content)

    assert record.error is not None
    assert record.error[1].startswith("input 'x': ")
    assert sentence in record.error[1]


def test_an_input_has_one_value() -> None:
    [_, _, *plain] = encode_record("u", {"x": ROW})

    record = decode(*plain, keys.COMPRESSED + b"x", compress(ROW, "lz4"))

    assert record.error is not None
    assert "two values for input 'x'" in record.error[1]
