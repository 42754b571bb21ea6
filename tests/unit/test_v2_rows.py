"""Rows of requests of the Open Inference Protocol: from arrays to records."""

import base64
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.tensors import decode_tensor
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.v2.datatypes import BYTES, datatype_of
from cluster_serving.frontend.v2.headless import read_headless
from cluster_serving.frontend.v2.rows import Rows, split
from cluster_serving.frontend.v2.tensors import Tensor
from support.heartbeats import described

MOST = 8


def node(*inputs: TensorSpec, raw: bool = False, already_batched: bool = False) -> Heartbeat:
    return described(inputs=inputs, raw=raw, already_batched=already_batched)


def rows_of(described: Heartbeat, **arrays: Any) -> Rows:
    tensors = {name: np.asarray(array) for name, array in arrays.items()}
    return split(
        {name: Tensor(name, datatype_of(array.dtype.name), array) for name, array in tensors.items()}, described, MOST
    )


def values(rows: Rows) -> list[dict[bytes, Any]]:
    """The records, with arrays for tensors."""
    return [
        {
            field: decode_tensor(content).tolist() if field.startswith((keys.TENSOR, keys.BOOL)) else content
            for field, content in zip(record[::2], record[1::2], strict=True)
        }
        for record in rows.records
    ]


X = TensorSpec("x", "float32", (None, 2))
FREE = TensorSpec("x", "float32", None)
FREE_Y = TensorSpec("y", "float32", None)
TEXT = TensorSpec("t", "str", (None,))
PIXELS = TensorSpec("p", "float32", (None, 3, 8, 8))


@pytest.mark.parametrize(
    "spec", [X, FREE, TensorSpec("x", "float32", (None, None)), TensorSpec("x", "float32", (4, 2))]
)
def test_each_row_is_a_record(spec: TensorSpec) -> None:
    rows = rows_of(node(spec), x=np.array([[1, 2], [3, 4], [5, 6]], np.float32))

    assert rows.stacked
    assert values(rows) == [{b"tensor:x": [1, 2]}, {b"tensor:x": [3, 4]}, {b"tensor:x": [5, 6]}]


def test_a_row_without_the_batch_dimension_is_one_record() -> None:
    rows = rows_of(node(X), x=np.array([1, 2], np.float32))

    assert (values(rows), rows.stacked) == ([{b"tensor:x": [1, 2]}], False)


def test_one_input_may_leave_out_a_batch_dimension_of_one() -> None:
    other = TensorSpec("y", "float32", (None, 3))

    rows = rows_of(node(X, other), x=np.zeros((1, 2), np.float32), y=np.zeros(3, np.float32))

    assert (values(rows), rows.stacked) == ([{b"tensor:x": [0, 0], b"tensor:y": [0, 0, 0]}], True)


def test_values_become_the_models_dtype_or_are_refused() -> None:
    assert values(rows_of(node(X), x=np.array([[1, 2]], np.int64))) == [{b"tensor:x": [1, 2]}]
    with pytest.raises(CodecError, match="16777217 of int64 would be lost"):
        rows_of(node(X), x=np.array([[1, 16777217]], np.int64))


def test_bools_have_a_field_of_their_own() -> None:
    rows = rows_of(node(TensorSpec("x", "bool", (None, 2))), x=np.array([[True, False], [False, True]]))

    assert values(rows) == [{b"bool:x": [1, 0]}, {b"bool:x": [0, 1]}]


def test_data_at_any_offset_of_a_body_are_copied_as_they_are() -> None:
    body = b"abc" + np.arange(4, dtype=np.float32).tobytes()
    array: Any = np.ndarray((2, 2), "<f4", body, 3)

    assert values(rows_of(node(X), x=array)) == [{b"tensor:x": [0, 1]}, {b"tensor:x": [2, 3]}]


def test_text_is_json() -> None:
    rows = rows_of(node(TEXT), t=np.array(["grün".encode(), "b"], object))

    assert values(rows) == [{b"string:t": '"grün"'.encode()}, {b"string:t": b'"b"'}]
    nested = rows_of(node(TensorSpec("t", "str", (None, 2))), t=np.array([["a", "b"]], object))
    assert values(nested) == [{b"string:t": b'["a","b"]'}]
    with pytest.raises(BadRequest, match="input 't': element 1 is not text in UTF-8"):
        rows_of(node(TEXT), t=np.array([b"a", b"\xff"], object))


@pytest.mark.parametrize(("shape", "row"), [((None,), ()), ((None, 1), (1,))])
def test_bytes_for_an_input_of_text_that_takes_them(shape: tuple[int | None, ...], row: tuple[int, ...]) -> None:
    takes_bytes = node(TensorSpec("t", "str", shape, takes_bytes=True))

    rows = rows_of(takes_bytes, t=np.array([b"\xff", b"b"], object).reshape(2, *row))

    assert values(rows) == [{b"image:t": b"\xff"}, {b"image:t": b"b"}]
    assert [*values(rows_of(takes_bytes, t=np.array(["text"], object).reshape(1, *row)))[0]] == [b"string:t"]


def test_bytes_for_numbers_are_encoded_images() -> None:
    rows = rows_of(node(PIXELS), p=np.array([[b"png 1"], [base64.b64encode(b"png 2").decode()]], object))

    assert values(rows) == [{b"image:p": b"png 1"}, {b"image:p": b"png 2"}]
    assert not rows_of(node(PIXELS), p=np.array(b"png", object)).stacked
    with pytest.raises(
        BadRequest, match=r"'p' is BYTES \[1, 2\], .* or BYTES \[-1\] with an encoded image for each row"
    ):
        rows_of(node(PIXELS), p=np.array([[b"1", b"2"]], object))
    with pytest.raises(BadRequest, match="input 'p': in JSON an image is base64 text"):
        rows_of(node(PIXELS), p=np.array(["?"], object))


def test_a_batch_that_belongs_together_is_one_record() -> None:
    call = TensorSpec("x", "float32", (None, 2), None)
    rows = rows_of(node(call, already_batched=True), x=np.zeros((20, 2), np.float32))

    assert (values(rows), rows.stacked) == ([{b"tensor:x": [[0, 0]] * 20}], False)


def test_rows_stand_along_the_batch_axis_and_what_has_none_is_of_every_row() -> None:
    inputs = (TensorSpec("s", "float32", (2, None, 1), 1), TensorSpec("rate", "int64", (), None))
    rows = rows_of(node(*inputs), s=np.arange(6, dtype=np.float32).reshape(2, 3, 1), rate=np.array(8))

    assert [record[b"tensor:s"] for record in values(rows)] == [[[0], [3]], [[1], [4]], [[2], [5]]]
    assert [record[b"tensor:rate"] for record in values(rows)] == [8, 8, 8]


def test_a_record_for_preprocess_is_as_it_came() -> None:
    rows = rows_of(
        node(X, raw=True),
        any=np.array([[1, 2]], np.int16),
        image=np.array([b"\xff\xd8\xff"], object),
        text=np.array([b"one"], object),
        texts=np.array([[b"a"], [b"b"]], object),
        flags=np.array([True]),
    )

    assert not rows.stacked
    assert values(rows) == [
        {
            b"tensor:any": [[1, 2]],
            b"image:image": b"\xff\xd8\xff",
            b"string:text": b'"one"',
            b"string:texts": b'[["a"],["b"]]',
            b"bool:flags": [1],
        }
    ]


def test_a_model_that_takes_anything_is_given_each_row() -> None:
    rows = rows_of(node(), a=np.zeros((2, 3), np.float32), b=np.ones(2, np.float32))

    assert values(rows) == [{b"tensor:a": [0, 0, 0], b"tensor:b": 1.0}] * 2


@pytest.mark.parametrize(
    ("described", "arrays", "reason"),
    [
        (
            node(X),
            {"x": np.zeros((1, 3), np.float32)},
            r"input 'x' is FP32 \[1, 3\], and the model takes FP32 \[-1, 2\]",
        ),
        (node(X), {"x": np.zeros((0, 2), np.float32)}, r"input 'x' is FP32 \[0, 2\]"),
        (
            node(FREE),
            {"x": np.zeros((0, 2), np.float32)},
            r"'x' is FP32 \[0, 2\], and the model takes FP32 \[-1, ...\]",
        ),
        (node(X), {"y": np.zeros((1, 2), np.float32)}, r"has the inputs 'y' FP32 \[1, 2\]; the model takes 'x' FP32"),
        (
            node(X, FREE_Y),
            {"X": np.zeros((1, 2), np.float32), "y": np.zeros((1, 2), np.float32)},
            r"the model takes 'x' FP32 \[-1, 2\], 'y' FP32 \[-1, ...\]; 'X' is none of these, and the nearest is 'x'",
        ),
        (node(TEXT), {"t": np.zeros(1, np.float32)}, r"input 't' is FP32 \[1\], and the model takes BYTES \[-1\]"),
        (node(X), {"x": np.zeros((MOST + 1, 2), np.float32)}, "the request has 9 rows; at most 8"),
        (node(FREE), {"x": np.zeros((1 << 20, 0), np.float32)}, "the request has 1048576 rows; at most 8"),
        (
            node(X, TEXT),
            {"x": np.zeros((3, 2), np.float32), "t": np.array("a", object)},
            "the same number of rows, and they have: 'x' 3, 't' one, without a batch dimension",
        ),
    ],
)
def test_what_the_model_does_not_take_is_refused_by_name(
    described: Heartbeat, arrays: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadRequest, match=reason):
        rows_of(described, **arrays)


def test_every_dtype_of_a_model_has_a_datatype() -> None:
    assert [datatype_of(dtype) for dtype in ("bool", "uint8", "int64", "float16", "float32", "str", "object")] == [
        "BOOL", "UINT8", "INT64", "FP16", "FP32", BYTES, BYTES,
    ]  # fmt: skip


def test_a_body_without_a_head_is_as_many_rows_as_it_has_bytes_for() -> None:
    tensor = read_headless(np.arange(6, dtype=np.float32).tobytes(), node(X))["x"]

    assert (tensor.datatype, tensor.array.tolist()) == ("FP32", [[0, 1], [2, 3], [4, 5]])
    assert read_headless(b"one text", node(TEXT))["t"].array.tolist() == [b"one text"]


@pytest.mark.parametrize(
    ("described", "body", "reason"),
    [
        (node(X, TEXT), bytes(8), "for a model with one input, and this model has 2"),
        (node(), bytes(8), "and this model has any"),
        (node(X), bytes(9), r"this body has 9 bytes, and the model takes FP32 \[-1, 2\]"),
        (node(X), b"", "this body has 0 bytes"),
        (node(FREE), bytes(8), "whole rows of a fixed size"),
        (node(TensorSpec("x", "float32", (None, None))), bytes(8), "whole rows of a fixed size"),
    ],
)
def test_a_body_without_a_head_must_tell_its_shape(described: Heartbeat, body: bytes, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        read_headless(body, described)
