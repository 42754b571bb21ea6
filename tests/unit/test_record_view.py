"""View of a record's fields, for people."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from cluster_serving.client.wire.compression import compress
from cluster_serving.client.wire.original.encode import encode_record as encode_original
from cluster_serving.client.wire.tensors import Array, encode_tensor
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.commands.record_view import FieldView, image_kind, view_fields

JPEG = b"\xff\xd8\xff\xe0" + bytes(96)


def native(**data: Any) -> list[FieldView]:
    """Of a native record, without its uri."""
    flat = encode_record("u", data)
    return list(view_fields(list(zip(flat[::2], flat[1::2], strict=True))))[1:]


def in_original(data: Mapping[str, object]) -> list[FieldView]:
    return list(view_fields([(b"uri", b"u"), (b"data", encode_original(data).encode())]))[1:]


@pytest.mark.parametrize(
    ("array", "dtype", "preview"),
    [
        (np.arange(3, dtype=np.int8), "int8", "0, 1, 2"),
        (
            np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 3,
            "float32",
            "0, 0.333333, 0.666667, 1, 1.33333, 1.66667, ...",
        ),
        (np.array([np.nan, np.inf, -1e-9]), "float64", "nan, inf, -1e-09"),
        (np.array([True, False]), "bool", "True, False"),
        (np.zeros((0, 4), np.float16), "float16", ""),
        (np.array(7), "int64", "7"),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
)
def test_tensors_show_dtype_shape_and_the_first_values(array: Array, dtype: str, preview: str) -> None:
    (view,) = native(x=array)

    assert (view.dtype, view.shape, view.preview, view.problem) == (dtype, list(array.shape), preview, "")
    assert view.kind == ("bool" if dtype == "bool" else "tensor")


def test_compressed_tensors_show_dtype_and_shape_and_are_not_decompressed() -> None:
    content = compress(np.zeros((100, 100), np.float32), "zstd")

    (view,) = view_fields([(b"compressed:x", content)])
    (broken,) = view_fields([(b"compressed:x", content[:9])])

    assert view == FieldView("compressed:x", "compressed", len(content), "float32", [100, 100], "zstd")
    assert (broken.kind, broken.size) == ("compressed", 9)
    assert broken.problem.startswith("not a compressed tensor")


def test_images_show_their_format_and_are_not_decoded() -> None:
    (view,) = native(x=JPEG)

    assert view == FieldView("image:x", "image", 100, "JPEG")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x89PNG\r\n\x1a\nrest", "PNG"),
        (b"GIF89a", "GIF"),
        (b"RIFF1234WEBP", "WebP"),
        (b"0000ftypavif", "AVIF"),
        (b"BMxx", "BMP"),
        (b"", "no known format"),
        (b"\xff", "no known format"),
    ],
)
def test_formats_of_images(content: bytes, kind: str) -> None:
    assert image_kind(content) == kind


def test_texts_are_cut() -> None:
    (short,) = native(x={"string": "hello"})
    (long,) = native(x={"string": "é" * 1000})

    assert short == FieldView("string:x", "string", 7, "JSON", preview='"hello"')
    assert len(long.preview) < 70
    assert long.preview.endswith("...")


def test_sparse_tensors() -> None:
    views = native(x=[np.array([[0, 1]]), np.array([0.5, 2.0]), np.array([4])])

    assert [(view.kind, view.shape, view.preview) for view in views] == [
        ("sparse indices", [1, 2], "0, 1"),
        ("sparse values", [2], "0.5, 2"),
        ("sparse shape", [1], "4"),
    ]


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff\xff", b"no tensor", encode_tensor(np.zeros(9))[:-1]])
def test_a_broken_tensor_says_what_is_wrong_with_it(content: bytes) -> None:
    (view,) = view_fields([(b"tensor:x", content)])

    assert view.problem
    assert (view.kind, view.size, view.preview) == ("tensor", len(content), "")


@pytest.mark.parametrize(
    ("content", "kind", "preview"),
    [
        (b"plain", "text", "plain"),
        (b"\xff\x00", "unknown", "ff 00"),
        (b"\xc3" * 500, "unknown", " ".join(["c3"] * 20) + " ..."),
        (("é" * 500).encode(), "text", "é" * 60 + "..."),
        (("a" + "é" * 500).encode(), "text", "a" + "é" * 59 + "..."),  # the cut goes through a character
        (b"a\nb", "unknown", "a\nb"),
    ],
)
def test_other_fields_are_text_or_bytes(content: bytes, kind: str, preview: str) -> None:
    (view,) = view_fields([(b"other", content)])

    assert (view.kind, view.preview, view.size) == (kind, preview, len(content))


def test_a_record_of_the_original_dialect_is_shown_by_its_columns() -> None:
    outer, tensor, words, image, sparse = in_original(
        {
            "t": np.ones((2, 2), np.float32),
            "s": ["a", "b"],
            "i": {"b64": base64.b64encode(JPEG).decode()},
            "p": [np.array([[0, 1]]), np.array([0.5, 2.0]), np.array([4])],
        }
    )

    assert (outer.name, outer.kind, outer.dtype) == ("data", "original", "Arrow")
    assert (tensor.name, tensor.dtype, tensor.shape, tensor.preview) == ("data: t", "float32", [2, 2], "1, 1, 1, 1")
    assert (words.kind, words.preview) == ("string", "a, b")
    assert (image.kind, image.dtype, image.size) == ("image", "JPEG", 100)
    assert (sparse.kind, sparse.shape, sparse.preview) == ("sparse", [4], "0.5, 2")


def test_a_record_of_the_original_dialect_in_json() -> None:
    fields = [(b"uri", b"u"), (b"data", b'{"instances": [{"x": [1.5, 2]}]}'), (b"serde", b"stream")]
    _, outer, column, serde = view_fields(fields)

    assert (outer.dtype, column.name, column.preview, serde.preview) == ("JSON", "data: x", "1.5, 2", "stream")


@pytest.mark.parametrize("content", [b"", b"!", b"bm8gQXJyb3c=", b"{}"])
def test_a_broken_record_of_the_original_dialect_says_what_is_wrong_with_it(content: bytes) -> None:
    _, column = view_fields([(b"data", content)])

    assert column.problem


def test_hidden_content_leaves_kind_and_size_of_inputs_and_what_is_on_the_envelope() -> None:
    flat = encode_record("u", {"x": np.ones(2), "s": {"string": "secret"}, "i": JPEG})
    fields = [*zip(flat[::2], flat[1::2], strict=True), (b"other", b"secret"), (b"traceparent", b"00-1")]
    data = encode_original({"t": np.ones(2, np.float32), "s": ["secret"]}).encode()
    views = [view for each in (fields, [(b"data", data)]) for view in view_fields(each, hide_content=True)]

    assert [view.preview for view in views if view.preview] == ["u", "00-1"]
    assert [view.kind for view in views] == [
        "text",
        "tensor",
        "string",
        "image",
        "text",
        "text",
        "original",
        "tensor",
        "string",
    ]
    assert all(view.size for view in views)
