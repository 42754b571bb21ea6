import base64
import hashlib
import math
import random
import struct
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from cluster_serving.client.errors import CodecError, InvalidValue
from cluster_serving.client.wire.original import decode as original_decode
from cluster_serving.client.wire.original.decode import decode_record
from cluster_serving.client.wire.original.encode import encode_record
from cluster_serving.client.wire.original.json_record import decode_json_record
from cluster_serving.client.wire.original.result import decode_result, encode_result, get_ndarray_from_b64
from cluster_serving.client.wire.original.values import (
    DenseTensor,
    EncodedImage,
    OriginalValue,
    SparseTensor,
    StringTensor,
    densify,
)

QUICK = settings(derandomize=True, max_examples=40)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
TENSOR = pa.struct(
    [
        ("indiceData", pa.list_(pa.int32())),
        ("indiceShape", pa.list_(pa.int32())),
        ("data", pa.list_(pa.float32())),
        ("shape", pa.list_(pa.int32())),
    ]
)
# Output [0.5, 0.25] of shape (2,), as the original's documentation of the format has it.
HALF_AND_QUARTER = (
    "/////7AAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAIAAABQAAAABAAAAMj///8AAAECEAAAACAAAAAEAAAA"
    "AAAAAAUAAABzaGFwZQAAAAgADAAIAAcACAAAAAAAAAEgAAAAEAAUAAgABgAHAAwAAAAQABAAAAAAAAEDEAAAABwAAAAEAAAAAAAAAAQAAABkYXRh"
    "AAAGAAgABgAGAAAAAAABAP////+4AAAAFAAAAAAAAAAMABYABgAFAAgADAAMAAAAAAMEABgAAAAYAAAAAAAAAAAACgAYAAwABAAIAAoAAABcAAAA"
    "EAAAAAIAAAAAAAAAAAAAAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAIAAAAAAAAAAgAAAAAAAAAAQAAAAAAAAAQAAAAAAAAAAgAAAAAAAAA"
    "AAAAAAIAAAACAAAAAAAAAAAAAAAAAAAAAgAAAAAAAAABAAAAAAAAAAAAAD8AAIA+AQAAAAAAAAACAAAAAAAAAP////8AAAAA"
)


def jpeg(height: int = 4, width: int = 6) -> bytes:
    return bytes(cv2.imencode(".jpg", np.full((height, width, 3), 90, np.uint8))[1].tobytes())


def stream(columns: dict[str, Any], *, legacy: bool = False, file: bool = False, **options: Any) -> str:
    """The base64 Arrow stream, or file, of one batch."""
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    if legacy:
        options |= {"use_legacy_format": True, "metadata_version": pa.ipc.MetadataVersion.V4}
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_file if file else pa.ipc.new_stream
    with new(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def tensor_column(
    data: list[float], shape: list[int], indices: list[int] | None = None, rows: list[int] | None = None
) -> Any:
    """A tensor column with whatever it is given, right or wrong."""
    return pa.array(
        [{"indiceData": indices or []}, {"indiceShape": rows or []}, {"data": data}, {"shape": shape}],
        TENSOR,
    )


def dense(value: OriginalValue) -> NDArray[np.float32]:
    assert isinstance(value, DenseTensor)
    return value.array


def test_a_dense_record_has_the_bytes_of_the_original() -> None:
    """The fixture of the original's own tests; a later Arrow may lay out its headers in another way."""
    encoded = base64.b64decode(encode_record({"t": np.array([[1], [2]])}))

    assert hashlib.sha256(encoded).hexdigest() == "e5cceeefc8a9bebeaf7b5ae6b7d95ec6e189c5f2db1d73c3df82be3eeb2cd7a8"
    assert pa.ipc.open_stream(encoded).read_next_batch().column(0).to_pylist() == [
        {"indiceData": [], "indiceShape": None, "data": None, "shape": None},
        {"indiceData": None, "indiceShape": [], "data": None, "shape": None},
        {"indiceData": None, "indiceShape": None, "data": [1.0, 2.0], "shape": None},
        {"indiceData": None, "indiceShape": None, "data": None, "shape": [2, 1]},
    ]


def test_a_sparse_record_has_the_layout_of_the_original() -> None:
    parts = [np.array([[0, 1, 4], [0, 2, 5]]), np.array([101, 102, 103]), np.array([5, 10])]
    encoded = encode_record({"x": parts})

    assert len(base64.b64decode(encoded)) == 1224
    [(name, value)] = decode_record(encoded)
    assert name == "x"
    assert isinstance(value, SparseTensor)
    assert value.indices.tolist() == [[0, 1, 4], [0, 2, 5]]
    assert value.values.tolist() == [101, 102, 103]
    assert value.shape == (5, 10)
    assert densify(*value)[[0, 1, 4], [0, 2, 5]].tolist() == [101, 102, 103]


def test_a_string_record_has_the_layout_of_the_original() -> None:
    encoded = encode_record({"s": ["abc", "dff"]})

    assert len(base64.b64decode(encoded)) == 304
    assert pa.ipc.open_stream(base64.b64decode(encoded)).read_all().to_pylist() == [{"s": "abc|dff"}]
    assert decode_record(encoded) == [("s", StringTensor(["abc", "dff"], (2,)))]


def test_images_and_tensors_travel_together() -> None:
    picture = jpeg()
    numbers = np.arange(6.0).reshape(2, 3)

    encoded = encode_record({"img": {"b64": base64.b64encode(picture)}, "t": numbers, "s": ["a", "b"]})

    (image_name, image), (tensor_name, tensor), (string_name, strings) = decode_record(encoded)
    assert [image_name, tensor_name, string_name] == ["img", "t", "s"]
    assert image == EncodedImage(picture)
    assert np.array_equal(dense(tensor), numbers)
    assert strings == StringTensor(["a", "b"], (2,))
    assert pa.ipc.open_stream(base64.b64decode(encoded)).read_next_batch().column(2).to_pylist() == [
        "a|b",
        None,
        None,
        None,
    ]


@QUICK
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        hnp.arrays(st.sampled_from([np.float32, np.float64, np.int16, np.bool_]), SHAPES),
        min_size=1,
        max_size=3,
    )
)
def test_dense_tensors_survive_a_round_trip(record: dict[str, NDArray[Any]]) -> None:
    """Twice, because the second record of the same shapes is read by the layout that the first one left."""
    for _ in range(2):
        decoded = decode_record(encode_record(record))

        assert [name for name, _ in decoded] == list(record)
        for (_, value), array in zip(decoded, record.values(), strict=True):
            with np.errstate(over="ignore"):
                assert np.array_equal(dense(value), array.astype(np.float32), equal_nan=True)
            assert dense(value).shape == array.shape


@QUICK
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="|")), min_size=2, max_size=5))
def test_strings_survive_a_round_trip(strings: list[str]) -> None:
    assert decode_record(encode_record({"s": strings})) == [("s", StringTensor(strings, (len(strings),)))]


@pytest.mark.parametrize("scalar", [3, 3.0, np.float64(3), np.int8(3)])
def test_a_scalar_becomes_a_tensor_of_one_element(scalar: float) -> None:
    [(_, value)] = decode_record(encode_record({"n": scalar}))

    assert dense(value).tolist() == [3.0]


def test_one_string_that_is_no_image_stays_a_string() -> None:
    assert decode_record(encode_record({"s": ["word"]})) == [("s", StringTensor(["word"], (1,)))]


def test_every_kind_of_image_is_taken(tmp_path: Path) -> None:
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[:, :, 0] = 200
    path = tmp_path / "blue.png"
    cv2.imwrite(str(path), pixels)
    encoded = base64.b64encode(jpeg()).decode()

    for value in (
        str(path),
        path,
        {"path": str(path)},
        {"path": path, "b64": "no"},
        {"image": pixels},
        jpeg(),
        {"b64": encoded},
    ):
        [(_, image)] = decode_record(encode_record({"img": value}))

        assert isinstance(image, EncodedImage)
        assert image.content.startswith(b"\xff\xd8\xff")
        shown = cv2.imdecode(np.frombuffer(image.content, np.uint8), cv2.IMREAD_COLOR)
        assert shown is not None
        assert shown.shape == (4, 6, 3)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "empty list is not supported"),
        (
            [np.zeros(1), np.zeros(1)],
            "Sparse Tensor must have list of ndarraywith length 3, which represent indices, values, shape respectively",
        ),
        ([1, 2], "List of string and ndarray is supported,but your input does not match"),
        (["a", 1], "List of string and ndarray is supported,but your input does not match"),
        ({"url": "x"}, "Your input dict must contain either 'path' or 'b64' key"),
        (None, "Your request does not match any schema, please check."),
        (np.array(["a"]), "Your request does not match any schema, please check."),
        (np.ma.array([1.0, 2.0], mask=[False, True]), "an array with masked values cannot be sent"),
        ("/no/such.jpg", "cannot read the image '/no/such.jpg'"),
        ({"path": "/dev/null"}, "'/dev/null' is not an image"),
        ({"image": np.zeros((2, 2, 4), np.uint8)}, "an image is uint8"),
        ({"image": np.zeros((1, 70000, 3), np.uint8)}, "OpenCV cannot encode an image of [1, 70000, 3] as JPEG"),
        ([np.array([[0.5]]), np.ones(1), np.array([3])], "the indices of a sparse tensor must be integers below 2**31"),
        ([np.array([[0]]), np.ones(1), np.array([2**40])], "the shape of a sparse tensor must be integers below 2**31"),
        ([np.array([[1j]]), np.ones(1), np.array([2])], "the indices of a sparse tensor must be integers"),
        (["\ud800", "b"], "not valid Unicode"),
    ],
)
def test_a_value_that_cannot_be_sent_is_named(value: object, sentence: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        encode_record({"my-input": value})

    assert "'my-input'" in str(caught.value)
    assert sentence in str(caught.value)


def test_a_record_needs_an_input() -> None:
    with pytest.raises(InvalidValue, match="at least one input"):
        encode_record({})


def test_an_image_that_opencv_fails_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise cv2.error("out of order")

    monkeypatch.setattr(cv2, "imencode", fail)

    with pytest.raises(InvalidValue, match="input 'img': OpenCV cannot encode this image: out of order"):
        encode_record({"img": {"image": np.zeros((2, 2), np.uint8)}})


def test_images_without_opencv_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)

    with pytest.raises(InvalidValue, match=r"pip install opencv-python-headless"):
        encode_record({"img": "cat.jpg"})


def test_the_framing_of_arrow_before_0_15_is_read() -> None:
    data = stream({"t": tensor_column([6, 87, 15], [3])}, legacy=True)

    assert not data.startswith("/////")
    assert dense(decode_record(data)[0][1]).tolist() == [6, 87, 15]


def test_the_file_format_of_enqueue_tensor_is_read() -> None:
    kind = pa.struct([("data", pa.list_(pa.float32())), ("shape", pa.list_(pa.int64()))])
    data = stream({"my-uri": pa.array([{"data": [1, 2, 3, 4]}, {"shape": [2, 2]}], kind)}, file=True)

    [(name, value)] = decode_record(data)

    assert name == "my-uri"
    assert dense(value).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("has_end", [True, False], ids=["Arrow 0.15 and later", "before"])
def test_several_tensors_of_enqueue_tensor_are_read(has_end: bool) -> None:
    kind = pa.struct([("data", pa.list_(pa.float32())), ("shape", pa.list_(pa.int64()))])
    tensors = [pa.array([{"data": [1, 2]}, {"shape": [2]}], kind), pa.array([{"data": [3]}, {"shape": [1, 1]}], kind)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("my-uri", kind)])) as writer:
        for tensor in tensors:
            writer.write_batch(pa.RecordBatch.from_arrays([tensor], names=["my-uri"]))
    file = sink.getvalue().to_pybytes()
    if not has_end:
        footer = 10 + int.from_bytes(file[-10:-6], "little")
        file = file[: -footer - 8] + file[-footer:]

    record = decode_record(base64.b64encode(file))

    assert [(name, dense(value).tolist()) for name, value in record] == [("t0", [1, 2]), ("t1", [[3]])]


def jvm_stream(shape: list[int], data: Any) -> bytes:
    """A tensor as the JVM front end writes it: one row declared, and each element in a list of its own."""
    rows = len(data)
    kinds = [pa.list_(pa.field("", kind)) for kind in (pa.int32(), data.type, pa.int32(), pa.int32())]
    shapes: list[list[int]] = [[dimension] for dimension in shape] + [[]] * (rows - len(shape))
    lists: list[Any] = [shapes, [[item] for item in data.to_pylist()], [[]] * rows, [[]] * rows]
    column = pa.StructArray.from_arrays(
        [pa.array(values, kind) for values, kind in zip(lists, kinds, strict=True)],
        names=["shape", "data", "indiceShape", "indiceData"],
    )
    message = bytearray(base64.b64decode(stream({"t": column})))
    # Arrow cannot be made to write this, so its counts of rows are overwritten: that of the batch, then of the struct.
    at = message.find(struct.pack("<q", rows))
    for _ in range(2):
        message[at : at + 8] = struct.pack("<q", 1)
        at = message.find(struct.pack("<q", rows), at)
    return base64.b64encode(message)


def test_the_layout_of_the_jvm_front_end_is_read() -> None:
    numbers = decode_record(jvm_stream([7, 11], pa.array(range(77), pa.int32())))
    words = [f"word {number}" for number in range(11)]
    strings = decode_record(jvm_stream([11], pa.array(words)))

    assert np.array_equal(dense(numbers[0][1]), np.arange(77).reshape(7, 11))
    assert strings == [("t", StringTensor(words, (11,)))]


def test_numeric_columns_are_scalars() -> None:
    picture = jpeg()
    columns = {
        "i": pa.array([5], pa.int32()),
        "f": pa.array([2.5], pa.float32()),
        "b": pa.array([picture], pa.binary()),
    }

    (_, integer), (_, number), (_, image) = decode_record(stream(columns))

    assert dense(integer).tolist() == [5]
    assert dense(number).tolist() == [2.5]
    assert image == EncodedImage(picture)


def test_only_the_first_batch_is_read() -> None:
    batch = pa.RecordBatch.from_arrays([tensor_column([1], [1])], names=["t"])
    other = pa.RecordBatch.from_arrays([tensor_column([1, 2], [5])], names=["t"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(other)

    assert len(decode_record(base64.b64encode(sink.getvalue().to_pybytes()))) == 1


def test_sparse_indices_are_turned_to_one_row_a_dimension() -> None:
    """The original's own fixtures have them both ways round; where both fit, the setting decides."""
    by_value = tensor_column([3, 4, 5], [100, 10000], [1, 1, 2, 2, 2, 3], [3, 2])
    square = tensor_column([3, 4], [9, 9], [1, 2, 3, 4], [2, 2])
    flat = tensor_column([3, 4], [9], [1, 8], [2])

    [(_, turned)] = decode_record(stream({"x": by_value}))
    [(_, kept)] = decode_record(stream({"x": square}))
    [(_, other)] = decode_record(stream({"x": square}), "nnz-major")
    [(_, line)] = decode_record(stream({"x": flat}))

    assert isinstance(turned, SparseTensor)
    assert turned.indices.tolist() == [[1, 2, 2], [1, 2, 3]]
    assert densify(*turned)[[1, 2, 2], [1, 2, 3]].tolist() == [3, 4, 5]
    assert isinstance(kept, SparseTensor)
    assert kept.indices.tolist() == [[1, 2], [3, 4]]
    assert isinstance(other, SparseTensor)
    assert other.indices.tolist() == [[1, 3], [2, 4]]
    assert isinstance(line, SparseTensor)
    assert line.indices.tolist() == [[1, 8]]


NULL_IN_LEAF = pa.array([{"data": [1.0, None]}, {"shape": [2]}], TENSOR)
DATA_ONLY = pa.array([{"data": [1.0]}], pa.struct([("data", pa.list_(pa.float32()))]))
FLOAT_SHAPE = pa.array(
    [{"data": [1.0], "shape": [1.0]}], pa.struct([("data", pa.list_(pa.float32())), ("shape", pa.list_(pa.float32()))])
)
NO_LISTS = pa.array([{"data": 1.0, "shape": 1}])
NO_NUMBERS = pa.array([{"data": [True], "shape": [1]}])
FLOAT_INDICES = pa.array([{"data": [1.0], "shape": [1], "indiceShape": [1, 1], "indiceData": [0.5]}])
NO_INDICES = pa.array([{"data": [1.0], "shape": [1], "indiceShape": [1, 1]}])


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (NO_LISTS, "column 't': field data has type double; it must be a list"),
        (NO_NUMBERS, "column 't' holds bool where numbers are expected"),
        (FLOAT_INDICES, "column 't': indices of type float64; they must be integers"),
        (NO_INDICES, "column 't' has indiceShape without indiceData"),
        (tensor_column([1, 2], [3]), "column 't': 2 elements where shape [3] has 3"),
        (tensor_column([1, 2], [2**31 - 1] * 40), "column 't': 2 elements where shape"),
        (tensor_column([1, 2], [-1, -2]), "column 't': negative dimension in shape [-1, -2]"),
        (tensor_column([1], [1] * 70), "column 't': shape of 70 dimensions"),
        (tensor_column([1, 2], [5, 5], [1, 2, 3], [3, 1]), "they must be [2, 2] or [2, 2]"),
        (tensor_column([1, 2], [5, 5], [1, 2, 3], [2, 2]), "column 't (indices)': 3 elements where shape [2, 2] has 4"),
        (tensor_column([1], [5, -5], [1, 2], [2, 1]), "column 't': negative dimension"),
        (NULL_IN_LEAF, "column 't': field data holds nulls"),
        (DATA_ONLY, "column 't' has fields ['data']; a tensor has data and shape"),
        (FLOAT_SHAPE, "column 't': a shape of type float32"),
        (pa.array([None], pa.string()), "column 't': its first row is null"),
        (pa.array([None], pa.int32()), "column 't': its first row is null"),
        (pa.array([b"\xff"], pa.binary()), "column 't':"),
        (pa.array([True]), "column 't' has type bool"),
        (pa.array(["a"]).dictionary_encode(), "dictionary"),
        (pa.array([], pa.int32()), "1 columns and 0 rows"),
        (pa.array(["/9j/4AAQSkZJRgABA"]), "column 't': the image is not base64, or is truncated"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(column: Any, sentence: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_record(stream({"t": column}))

    assert sentence in str(caught.value)


def test_bytes_that_are_no_record_are_refused() -> None:
    encoded = encode_record({"t": np.zeros(9)})
    empty = pa.BufferOutputStream()
    pa.ipc.new_stream(empty, pa.schema([("t", TENSOR)])).close()

    for data, sentence in (
        (encoded[:-3], "the record's data field is not base64, or is truncated"),
        ("ä" + encoded, "the record's data field is not base64, or is truncated"),
        (base64.b64encode(base64.b64decode(encoded)[:-90]), "truncated"),
        (base64.b64encode(b"some other bytes"), "not an Arrow stream"),
        (b"", "it has no schema"),
        (base64.b64encode(empty.getvalue().to_pybytes()), "holds no batch"),
        (stream({"t": tensor_column([0.0] * 4096, [4096])}, compression="zstd"), "the record batch is compressed"),
    ):
        with pytest.raises(CodecError, match=sentence):
            decode_record(data)


def test_names_that_stand_for_two_things_are_refused() -> None:
    field = pa.array([[1.0]], pa.list_(pa.float32()))
    twice = pa.StructArray.from_arrays([field, field], names=["data", "data"])
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["t", "t"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)

    with pytest.raises(CodecError, match="column 't' has two fields of the same name"):
        decode_record(stream({"t": twice}))
    with pytest.raises(CodecError, match="two columns of the same name"):
        decode_record(base64.b64encode(sink.getvalue().to_pybytes()))


def test_a_stream_that_does_not_begin_with_a_schema_is_refused() -> None:
    """Without a look at the message's type first, pyarrow ends the process here."""
    message = bytearray(base64.b64decode(HALF_AND_QUARTER))
    message[20] = 1

    with pytest.raises(CodecError, match="begins with a unknown message"):
        decode_record(base64.b64encode(message))


def test_layouts_that_are_kept_do_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original_decode, "MAX_LAYOUTS", 3)

    for size in range(1, 10):
        [(_, value)] = decode_record(encode_record({"t": np.ones(size)}))

        assert dense(value).shape == (size,)


def test_scalars_and_tensors_travel_together() -> None:
    columns = {"n": pa.array([1, 2, 3, 4], pa.int32()), "t": tensor_column([5, 6], [2])}

    (_, number), (_, tensor) = decode_record(stream(columns))

    assert dense(number).tolist() == [1]
    assert dense(tensor).tolist() == [5, 6]


def test_a_truncated_record_of_a_known_layout_is_refused() -> None:
    message = base64.b64decode(encode_record({"t": np.zeros(9)}))
    decode_record(base64.b64encode(message))

    with pytest.raises(CodecError, match="truncated"):
        decode_record(base64.b64encode(message[:-60]))


def test_damaged_records_raise_nothing_but_codec_errors() -> None:
    seed = 20240
    chance = random.Random(seed)
    sound = [
        base64.b64decode(encode_record({"t": np.zeros((3, 2)), "u": np.ones(4)})),
        base64.b64decode(encode_record({"s": ["a", "b"], "x": [np.array([[0], [1]]), np.ones(1), np.array([2, 2])]})),
        base64.b64decode(encode_result([np.arange(4.0), np.ones((2, 2))])),
    ]
    for attempt in range(2000):
        message = bytearray(chance.choice(sound))
        for _ in range(chance.randint(1, 4)):
            message[chance.randrange(len(message))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
        for decode in (decode_record, get_ndarray_from_b64):
            try:
                decode(base64.b64encode(message))
            except CodecError:
                continue
            except Exception as error:
                raise AssertionError(f"seed {seed}, attempt {attempt}") from error


def test_line_breaks_in_base64_are_allowed() -> None:
    encoded = encode_record({"t": np.arange(3)})

    assert dense(decode_record(base64.encodebytes(base64.b64decode(encoded)))[0][1]).tolist() == [0, 1, 2]


def test_a_json_record_has_every_kind_of_value() -> None:
    picture = base64.b64encode(jpeg()).decode()
    body = (
        '{"instances": [{"i": 12345, "f": 3.5, "s": "a|b", "t": [[1, 2.5], [3, 4]], "words": [["a", "b"]], '
        f'"img": "{picture}", "img2": {{"b64": "{picture}"}}, '
        '"x": {"shape": [9, 9], "data": [3, 4], "indices": [[1, 2], [3, 4]]}, '
        '"none": {"shape": [9, 9], "data": [], "indices": []}}, {"second": "instance"}]}'
    )

    decoded = dict(decode_json_record(body.encode()))

    assert list(decoded) == ["i", "f", "s", "t", "words", "img", "img2", "x", "none"]
    assert dense(decoded["i"]).tolist() == [12345]
    assert dense(decoded["f"]).tolist() == [3.5]
    assert decoded["s"] == StringTensor(["a|b"], (1,))
    assert dense(decoded["t"]).tolist() == [[1, 2.5], [3, 4]]
    assert decoded["words"] == StringTensor(["a", "b"], (1, 2))
    assert decoded["img"] == decoded["img2"] == EncodedImage(jpeg())
    sparse, nothing = decoded["x"], decoded["none"]
    assert isinstance(sparse, SparseTensor)
    assert sparse.indices.tolist() == [[1, 3], [2, 4]]
    assert isinstance(nothing, SparseTensor)
    assert nothing.indices.shape == (2, 0)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "no instance can be found, please check your input or json(keyword should be 'instances')"),
        ('{"instances": []}', "no instance can be found"),
        ('{"instances": [{}]}', "not a JSON object with at least one input"),
        ('{"instances": [{"a": null}]}', "column 'a' holds NoneType"),
        ('{"instances": [{"a": true}]}', "column 'a' holds bool"),
        ('{"instances": [{"a": [1, "b"]}]}', "column 'a' holds str"),
        ('{"instances": [{"a": []}]}', "column 'a': empty list is not supported"),
        ('{"instances": [{"a": [[1], [2, 3]]}]}', "column 'a': the nested list is ragged at depth 1"),
        ('{"instances": [{"a": [[1], 2]}]}', "column 'a': the nested list is ragged at depth 1"),
        ('{"instances": [{"a": [1, [2]]}]}', "column 'a' holds list"),
        ('{"instances": [{"a": {"b64": "!"}}]}', "column 'a': the image is not base64"),
        ('{"instances": [{"a": {"c": 1}}]}', "column 'a' holds dict"),
        ('{"instances": [{"a": 1' + "0" * 400 + "}]}", "column 'a':"),
        ('{"instances": [{"a": {"shape": [1.5], "data": [1], "indices": [[0]]}}]}', "must be integers"),
        ('{"instances": [{"a": {"shape": [5], "data": [1], "indices": [[9999999999]]}}]}', "2**31"),
    ],
)
def test_a_json_record_that_makes_no_sense_is_refused(body: str, sentence: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_json_record(body.encode())

    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("indices", "shape", "sentence"),
    [
        ([[0, 5]], [5], r"sparse index \[5\] lies outside shape \[5\]"),
        ([[0, -1]], [5], r"sparse index \[-1\] lies outside"),
        ([[0, 1]], [5, 5], "for 2 values of a tensor of rank 2"),
        ([[0, 1]], [-5], "negative dimension"),
        ([[0, 1]], [2**40], "at most 1000 are allowed"),
        ([[0, 0]] * 70, [1] * 70, "shape of 70 dimensions"),
    ],
)
def test_a_sparse_tensor_that_does_not_fit_is_not_densified(
    indices: list[list[int]], shape: list[int], sentence: str
) -> None:
    with pytest.raises(CodecError, match=sentence):
        densify(np.array(indices), np.ones(2, np.float32), shape, max_bytes=1000)


def test_densify_without_values_is_all_zero() -> None:
    assert densify(np.empty((2, 0), np.int32), np.empty(0, np.float32), (2, 1)).tolist() == [[0], [0]]


def test_the_documented_result_is_written_and_read() -> None:
    assert encode_result([np.array([0.5, 0.25])]).decode() == HALF_AND_QUARTER
    decoded = decode_result(HALF_AND_QUARTER)
    assert isinstance(decoded, np.ndarray)
    assert decoded.tolist() == [0.5, 0.25]


def test_a_result_has_the_layout_of_the_original() -> None:
    """As the original's serializer test: two fields, and as many shapes, padded with nulls, as data."""
    encoded = encode_result([np.array([[[1.2], [2]]])])

    batch = pa.ipc.open_stream(base64.b64decode(encoded)).read_next_batch()
    assert batch.schema == pa.schema([("data", pa.float32()), ("shape", pa.int32())])
    assert batch.to_pydict() == {"data": [pytest.approx(1.2), 2.0], "shape": [1, 2]}


@QUICK
@given(st.lists(hnp.arrays(np.float32, SHAPES), min_size=1, max_size=3))
def test_results_survive_a_round_trip(outputs: list[NDArray[np.float32]]) -> None:
    """Save for what the layout cannot hold: the shape of nothing, and ones that a shape can do without."""
    value = decode_result(encode_result(outputs))

    decoded = [value] if isinstance(value, np.ndarray) else value
    assert len(decoded) == len(outputs)
    for found, output in zip(decoded, outputs, strict=True):
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found.ravel(), output.ravel(), equal_nan=True)
        if output.ndim <= output.size:
            assert found.shape == output.shape


@pytest.mark.parametrize(
    ("shape", "readable"), [((1, 1), (1,)), ((1, 1, 2), (1, 2)), ((1, 2, 1), (1, 2)), ((), ()), ((0, 3), (0,))]
)
def test_shapes_longer_than_their_data_are_cut_so_that_they_can_be_read(
    shape: tuple[int, ...], readable: tuple[int, ...]
) -> None:
    decoded = decode_result(encode_result([np.ones(shape, np.float32)]))

    assert isinstance(decoded, np.ndarray)
    assert decoded.shape == readable


def test_a_shape_that_the_original_cut_is_restored() -> None:
    columns = {"data": pa.array([1, 2], pa.float32()), "shape": pa.array([1, 1], pa.int32())}

    decoded = decode_result(stream(columns))

    assert isinstance(decoded, np.ndarray)
    assert decoded.shape == (1, 1, 2)


def test_a_large_output_is_written_without_keeping_its_template() -> None:
    output = np.arange(20_000, dtype=np.int64).reshape(2, 10_000)

    decoded = decode_result(encode_result([output]))

    assert np.array_equal(np.asarray(decoded), output)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[[903,0.1306194]]", [[903, 0.1306194]]),
        ("[[4,5.0][3,4.0]]", [[4, 5.0], [3, 4.0]]),
        ("[[4,5.0],[3,4.0]]", [[4, 5.0], [3, 4.0]]),
        ("[[1,1.0E7][0,-Infinity]]", [[1, 1e7], [0, -math.inf]]),
        ('["see [1][2]"]', ["see [1][2]"]),
        ('[["a][b",0.5]]', [["a][b", 0.5]]),
        ("[[4,5.0][3,4.0]][[0,1.0]]", [[[4, 5.0], [3, 4.0]], [[0, 1.0]]]),
        ("NaN", "NaN"),
        ("[]", "[]"),
        ("", ""),
        ("[not a list", "[not a list"),
        ("abcd", "abcd"),
        ("it is a cat", "it is a cat"),
    ],
)
def test_the_text_of_a_result_is_read(text: str, value: object) -> None:
    assert decode_result(text) == value
    assert decode_result(text.encode()) == value


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"data": pa.array([1.0], pa.float32())}, "a float32 and an int32 column"),
        ({"data": pa.array([1, 2], pa.float32()), "shape": pa.array([3, None], pa.int32())}, "2 elements and shape"),
        ({"data": pa.array([1, 2], pa.float32()), "shape": pa.array([-1, -2], pa.int32())}, "2 elements and shape"),
        ({"data": pa.array([1, None], pa.float32()), "shape": pa.array([2, None], pa.int32())}, "holds nulls"),
    ],
)
def test_a_result_that_makes_no_sense_is_refused(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CodecError, match=sentence):
        decode_result(stream(columns))


def test_a_result_without_batches_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, pa.schema([("data", pa.float32()), ("shape", pa.int32())])).close()

    with pytest.raises(CodecError, match="holds no batch"):
        decode_result(base64.b64encode(sink.getvalue().to_pybytes()))


def test_a_result_of_too_many_dimensions_is_refused() -> None:
    columns = {"data": pa.array([0.0] * 80, pa.float32()), "shape": pa.array([80] + [1] * 79, pa.int32())}

    with pytest.raises(CodecError, match="80 dimensions"):
        decode_result(stream(columns))


def test_a_broken_arrow_result_is_no_text() -> None:
    with pytest.raises(CodecError, match="truncated"):
        decode_result(HALF_AND_QUARTER[:300])


def test_results_that_cannot_be_sent_are_refused() -> None:
    with pytest.raises(CodecError, match="without outputs"):
        encode_result([])
    with pytest.raises(CodecError, match="dtype <U1"):
        encode_result([np.array(["a"])])


def test_a_result_is_read_by_the_layout_of_the_one_before() -> None:
    """Of the same shape, whatever its elements; and none that has the same headers and another body."""
    first, second = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)
    assert isinstance(get_ndarray_from_b64(encode_result([first])), np.ndarray)
    message = bytearray(base64.b64decode(encode_result([second])))

    found = get_ndarray_from_b64(base64.b64encode(message))
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, second)
    assert found.flags.writeable
    assert len(get_ndarray_from_b64(encode_result([first, second]))) == 2
    for place in range(
        len(message) - 200, len(message)
    ):  # the body: elements, marks of the dimensions, dimensions, end
        damaged = bytes(message[:place]) + bytes([message[place] ^ 0xFF]) + bytes(message[place + 1 :])
        try:
            again = get_ndarray_from_b64(base64.b64encode(damaged))
        except CodecError:
            continue
        assert isinstance(again, np.ndarray)
        assert again.size == 12
    for cut in (1, 8, 100):
        with pytest.raises(CodecError):
            get_ndarray_from_b64(base64.b64encode(message[:-cut]).decode()[:-4])
