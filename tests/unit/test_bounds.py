"""Records made to cost much more than their bytes: refused before anything is allocated, and in time that grows with them.

A product of a million dimensions takes an hour; such a test fails by its timeout.
"""

import base64
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.original import values as original_values
from cluster_serving.client.wire.original.decode import decode_record
from cluster_serving.client.wire.original.json_record import decode_json_record
from cluster_serving.client.wire.original.result import decode_result
from cluster_serving.client.wire.original.values import densify
from cluster_serving.client.wire.result import decode_result as decode_native_result
from cluster_serving.client.wire.tensors import decode_tensor, encode_tensor, tensor_header
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.processing.image import decode as decode_image
from cluster_serving.node.processing.model_input import raw_record
from cluster_serving.node.processing.records import decode_record as decode_raw_record
from cluster_serving.node.reader.decoding import RecordDecoder
from cluster_serving.node.ring.input_layout import Signature, plan

MANY = 1_000_000
PREFIX = b"cluster-serving.reply_job:"


def refused(call: Callable[[], object], most_bytes: int = 1 << 26) -> str:
    """Return the message of the refusal, and check that making the refusal has not taken more memory than `most_bytes`."""
    tracemalloc.start()
    arrow_bytes = pa.total_allocated_bytes()
    try:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the caller looks at what it says
            call()
        peak = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - arrow_bytes
    finally:
        tracemalloc.stop()
    assert peak < most_bytes
    return str(caught.value)


def in_arrow(column: Any, name: str = "t") -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([column], names=[name])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue().to_pybytes())


def tensor_of(shape: NDArray[Any], data: NDArray[Any]) -> Any:
    lists = [pa.array([data], pa.list_(pa.float32())), pa.array([shape], pa.list_(pa.int64()))]
    return pa.StructArray.from_arrays(lists, names=["data", "shape"])


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\x01\x20\x00\x00"])
def test_a_tensor_whose_header_says_that_it_is_long(size: bytes) -> None:
    message = b"\xff\xff\xff\xff" + size + bytes(10_000)

    assert "not a tensor message" in refused(lambda: decode_tensor(message), 1 << 17)


@pytest.mark.parametrize("shape", [(1 << 25, 0), (0, 1 << 25), (1 << 13, 0, 1 << 13)])
def test_a_tensor_of_very_many_rows_without_elements(shape: tuple[int, ...]) -> None:
    """A model answers as many empty rows with as many full ones."""
    message = tensor_header(np.dtype(np.int8), shape)

    assert "tensor" in refused(lambda: decode_tensor(message))


def test_an_ordinary_tensor_without_elements_is_read() -> None:
    assert decode_tensor(encode_tensor(np.zeros((0, 3, 224, 224)))).shape == (0, 3, 224, 224)


@pytest.mark.parametrize("dimension", [1, 2, (1 << 62)])
def test_a_sparse_tensor_of_a_million_dimensions(dimension: int) -> None:
    shape, none = np.full(MANY, dimension), np.zeros(0, np.float32)
    decoder = RecordDecoder((TensorSpec("x", "float32", (None, 2)),), PREFIX)
    fields = encode_record("u", {"x": [np.zeros((MANY, 0), np.int64), none, shape]})

    record = decoder.decode(b"5-1", fields, 0)

    assert record.error is not None
    assert "1000000 dimensions; at most 64" in record.error[1]


@pytest.mark.parametrize("dimension", [1, 2, (1 << 31) - 1])
def test_an_original_tensor_of_a_million_dimensions(dimension: int) -> None:
    record = in_arrow(tensor_of(np.full(MANY, dimension), np.zeros(1, np.float32)))

    assert "1000000 dimensions; at most 64" in refused(lambda: decode_record(record), 10 * len(record))


def test_a_result_of_a_million_dimensions() -> None:
    columns = [pa.array(np.zeros(MANY, np.float32)), pa.array(np.full(MANY, 2, np.int32))]
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays(columns, names=["data", "shape"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    value = base64.b64encode(sink.getvalue().to_pybytes())

    assert "1000000 dimensions" in refused(lambda: decode_result(value), 10 * len(value))


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ([1 << 20, 1 << 20], "has 4398046511104 bytes"),
        ([10**4000, 10**4000], "a dimension in the shape is larger"),
        ([0, 1 << 40], "of a tensor without elements"),
        ([-1], "negative dimension"),
    ],
)
def test_a_sparse_tensor_that_would_be_dense_in_terabytes(shape: list[int], sentence: str) -> None:
    indices, values = np.zeros((len(shape), 0), np.int64), np.zeros(0, np.float32)

    assert sentence in refused(lambda: densify(indices, values, shape))


def test_an_empty_original_tensor_of_terabytes() -> None:
    record = in_arrow(tensor_of(np.array([1 << 40, 0]), np.zeros(0, np.float32)))

    assert "of a tensor without elements" in refused(lambda: decode_record(record))


@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(1 << 20),
        pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30]), pa.array([7])),
        pa.array(["a"], pa.string_view()),
        pa.array([["a"]], pa.list_(pa.string_view())),
        pa.array([[1]], pa.list_view(pa.int32())),
        pa.array(["a"], pa.large_string()),
        pa.array(["a"]).dictionary_encode(),
        pa.array([[[1]]], pa.list_(pa.list_(pa.int32()))),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
        pa.array([1], pa.decimal128(10)),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.array([b"0123456789abcdef"], pa.uuid()),
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((1, 2))),
        pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("in_struct", [False, True])
def test_arrow_types_that_no_writer_makes(column: Any, in_struct: bool) -> None:
    """Among them those whose length says nothing of their bytes, and extension types."""
    if in_struct:
        column = pa.StructArray.from_arrays([column], names=["data"])
    record = in_arrow(column)

    assert "is neither a tensor, text nor a number" in refused(lambda: decode_record(record), 1 << 17)


def test_more_columns_than_any_model_has() -> None:
    names = [f"column {number}" for number in range(50_000)]
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names=names)
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    record = base64.b64encode(sink.getvalue().to_pybytes())

    assert "metadata have" in refused(lambda: decode_record(record), 3 * len(record))


@pytest.mark.parametrize("column", [pa.array(["|" * 2_000_000]), pa.array([{"data": [""] * 2_000_000, "shape": [1]}])])
def test_more_strings_than_are_read(column: Any) -> None:
    """`"|" * n` becomes nine times as many bytes."""
    record = in_arrow(column)

    with pytest.raises(CodecError, match=r"strings; at most 1048576|elements where shape"):
        decode_record(record)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('{"instances": ' + "[" * 200_000, "the record is not JSON"),
        ('{"instances": [{"x": ' + "[" * 900 + "1" + "]" * 900 + "}]}", "900 dimensions; at most 64"),
        ('{"instances": [{"x": ' + "9" * 200_000 + "}]}", "the record is not JSON"),
        ('{"instances": [{"x": {"shape": [1' + "0" * 4000 + '], "data": [1], "indices": [[0]]}}]}', "is larger than"),
        (" " * ((32 << 20) + 1), "at most 33554432 are read"),
    ],
    ids=["deep", "nested", "digits", "dimension", "long"],
)
def test_json_that_costs_more_than_it_says(body: str, sentence: str) -> None:
    assert sentence in refused(lambda: decode_json_record(body))


def test_a_tensor_that_becomes_many_times_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster_serving.client.tensor_spec.MAX_DENSE_BYTES", 15)
    decoder = RecordDecoder((TensorSpec("x", "float64", (None, None)),), PREFIX)

    small = decoder.decode(b"5-1", encode_record("u", {"x": np.zeros(2, np.int8)}), 0)
    as_sent = decoder.decode(b"5-1", encode_record("u", {"x": np.zeros(2, np.float64)}), 0)

    assert small.error is not None
    assert small.error[1].endswith("int8 [2] would have 16 bytes; at most 15 are made")
    assert as_sent.error is None


def test_text_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original_values, "MAX_JSON_BYTES", 10)
    monkeypatch.setattr("cluster_serving.node.processing.records.MAX_JSON_BYTES", 10)
    decoder = RecordDecoder((TensorSpec("x", "str", (None,)),), PREFIX)
    fields = encode_record("u", {"x": {"string": "0123456789"}})

    record = decoder.decode(b"5-1", fields, 0)

    assert record.error is not None
    assert record.error[1] == "input 'x' has 12 bytes of JSON; at most 10 are read"
    with pytest.raises(ValueError, match=r"input 'x': 12 bytes of JSON; at most 10 are read"):
        decode_raw_record(bytes(raw_record({fields[2]: fields[3]}).content), bytes)


def test_a_record_of_more_inputs_than_a_slot_can_describe() -> None:
    """Of a model that takes any number: the reader must not die of it."""
    tensors: Signature = (("tensor", "<f4", (1,)),) * 5000
    images: Signature = (("image", "", ()),) * 1000

    for signature in (tensors, images):
        assert plan(signature, 4, 1 << 26).capacity == 0
        assert plan(signature[:300], 4, 1 << 26).capacity > 0


def test_a_result_whose_field_has_no_name() -> None:
    with pytest.raises(CodecError, match="is not JSON"):
        decode_native_result("u", [b"string:\xff", b"{"])


def png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    header = (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    parts = [header, *chunks, (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def bmp(width: int, height: int) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 154, 0, 0, 54) + header + bytes(100)


def tiff(width: int, height: int) -> bytes:
    tags = ((256, width), (257, height), (258, 8), (259, 1), (262, 2), (273, 8), (277, 3), (278, height), (279, 100))
    table = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", 108) + bytes(100) + struct.pack("<H", len(tags)) + table + bytes(4)


def jpeg_2000(width: int, height: int) -> bytes:
    size = struct.pack(">HHIIIIIIIIH", 47, 0, width, height, 0, 0, width, height, 0, 0, 3) + b"\7\1\1" * 3
    style = struct.pack(">HBBHBBBBBB", 12, 0, 0, 1, 0, 5, 4, 4, 0, 1)
    steps = struct.pack(">HB", 19, 0x40) + b"\x40" * 16
    return b"\xff\x4f\xff\x51" + size + b"\xff\x52" + style + b"\xff\x5c" + steps + bytes(60) + b"\xff\xd9"


FRAMES = (b"acTL", struct.pack(">II", 100_000, 0))
FRAME = (b"fcTL", struct.pack(">IIIIIHHBB", 0, 100_000, 100_000, 0, 0, 1, 1, 0, 0))
RASTER = struct.pack(">8I", 0x59A66A95, 100_000, 100_000, 24, 0, 1, 0, 0) + bytes(100)
GIF = b"GIF89a" + struct.pack("<HHBBB", 65_535, 65_535, 0x80, 0, 0) + bytes(6)
WEBP = b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\2\0\0\0" + b"\xff" * 6


@pytest.mark.parametrize(
    "content",
    [
        png(100_000, 100_000),
        png(100_000, 100_000, FRAMES, FRAME),
        bmp(100_000, 100_000),
        tiff(100_000, 100_000),
        jpeg_2000(100_000, 100_000),
        b"P6\n100000 100000\n255\n" + bytes(100),
        b"PF\n100000 100000\n-1.0\n" + bytes(100),
        b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 100000 +X 100000\n" + bytes(100),
        GIF + b"\x2c" + struct.pack("<HHHHB", 0, 0, 65_535, 65_535, 0) + b"\2\2\x44\1\0\x3b",
        WEBP,
        RASTER,
    ],
    ids=["png", "apng", "bmp", "tiff", "jpeg2000", "ppm", "pfm", "hdr", "gif", "webp", "raster"],
)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_image_headers_that_say_ten_thousand_million_pixels(content: bytes, channels: int) -> None:
    """OpenCV looks at the header first; the limit of a worker is lower than the one that counts here."""
    assert "image" in refused(lambda: decode_image(content, channels), 1 << 20)


@pytest.mark.parametrize("before", [b"", struct.pack(">I", 0) + b"IEND" + bytes(4)], ids=["header", "early end"])
def test_a_png_chunk_that_says_a_gigabyte(before: bytes) -> None:
    content = png(4, 4)[:33] + before + struct.pack(">I", 1 << 30) + b"IDAT" + bytes(30)

    told = f"a PNG of {71 + len(before)} bytes with a chunk of 1073741824"
    assert told in refused(lambda: decode_image(content, 3), 1 << 20)
