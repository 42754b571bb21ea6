"""Targets of the fuzzing: each takes any bytes, and fails unless the bytes are a value or a refusal.

A stream entry and a result are several byte strings; in one input they stand between `SEPARATOR`s.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.original.base64_text import to_base64
from cluster_serving.client.wire.original.decode import decode_record as decode_original
from cluster_serving.client.wire.original.json_record import decode_json_record
from cluster_serving.client.wire.original.result import decode_result as decode_original_result
from cluster_serving.client.wire.original.values import DenseTensor, OriginalValue, SparseTensor, densify
from cluster_serving.client.wire.result import decode_result
from cluster_serving.client.wire.tensors import decode_tensor, encode_tensor, tensor_layout
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.processing.image import ImageFit, decode
from cluster_serving.node.processing.options import DecodeOptions, ImageOptions
from cluster_serving.node.reader.decoding import Record, RecordDecoder
from cluster_serving.node.reader.open_batch import OpenBatch
from cluster_serving.node.ring.input_layout import plan
from cluster_serving.node.ring.slot import Geometry, Slot
from cluster_serving.node.worker.inputs import SlotInputs

SEPARATOR: Final = b"\n~~\n"
PREFIX: Final = b"cluster-serving.reply_job:"
X = TensorSpec("x", "float32", (None, 2))
Y = TensorSpec("y", "int64", (None,))
FREE = TensorSpec("x", "float32", (None, None))
TEXT = TensorSpec("x", "str", (None,))
PIXELS = TensorSpec("x", "uint8", (None, 3, 4, 4))

_GEOMETRY = Geometry(slots=1, batch=4, slot_bytes=1 << 18, workers=1)


def native_tensor(content: bytes) -> None:
    """A tensor is a view of its message; what the header says is the same the second time, from the kept layout."""
    for _ in range(2):
        try:
            found = decode_tensor(content)
        except CodecError:
            continue
        assert found.nbytes <= len(content)
        assert found.dtype.kind in "iuf"
        layout = tensor_layout(content)
        assert layout is None or layout.shape == found.shape
        again = decode_tensor(encode_tensor(found))
        assert again.tobytes() == found.tobytes()
        assert again.shape == found.shape


def native_result(content: bytes) -> None:
    """A result has outputs, a value or an error."""
    fields = content.split(SEPARATOR)
    with suppress(CodecError):
        decode_result("uri", fields[: len(fields) // 2 * 2])


def original_record(content: bytes) -> None:
    """A record of the original dialect, from its Arrow stream."""
    _columns(lambda: decode_original(to_base64(content)), content)


def original_result(content: bytes) -> None:
    """A result of the original dialect: an Arrow stream, or any text."""
    for value in (content, to_base64(content)):
        with suppress(CodecError):
            decode_original_result(value)


def json_record(content: bytes) -> None:
    """A record that is the JSON of an HTTP request."""
    _columns(lambda: decode_json_record(content), content)


def _columns(decode_columns: Callable[[], list[tuple[str, OriginalValue]]], content: bytes) -> None:
    for _ in range(2):  # the second time from the kept layout
        try:
            columns = decode_columns()
        except CodecError:
            continue
        for _, value in columns:
            if isinstance(value, DenseTensor):
                assert value.array.nbytes <= 4 * len(content)
            elif isinstance(value, SparseTensor):
                _dense(value)


def _dense(value: SparseTensor) -> None:
    try:
        dense = densify(value.indices, value.values, value.shape, max_bytes=1 << 20)
    except CodecError:
        return
    assert dense.nbytes <= 1 << 20


def image(content: bytes) -> None:
    """An encoded image, as a worker reads it."""
    for channels in (1, 3, 4):
        try:
            pixels = decode(content, channels)
        except ValueError:
            continue
        assert pixels.shape[2] == channels
    try:
        row = _FIT(content)
    except ValueError:
        return
    assert row.shape == (3, 4, 4)


_FIT = ImageFit(PIXELS)


class _Pipeline:
    """Way of an entry through the reader and a worker, for one model."""

    def __init__(self, *inputs: TensorSpec, options: DecodeOptions | None = None) -> None:
        self._decoder = RecordDecoder(inputs, PREFIX, options)
        self._contents = SlotInputs(inputs, ImageOptions())
        self._slot = Slot(memoryview(bytearray(_GEOMETRY.slot_stride)), _GEOMETRY)

    def __call__(self, fields: Sequence[bytes]) -> None:
        record = self._decoder.decode(b"5-1", fields, 500)
        assert 0 < len(record.uri) <= 4096
        assert len(record.signature) == len(record.contents)
        if record.error is not None:
            assert len(record.error[1].encode()) <= 2048
            self._fill(record, ())
            return
        self._fill(record, record.signature)

    def _fill(self, record: Record, signature: Any) -> None:
        layout = plan(signature, _GEOMETRY.batch, _GEOMETRY.slot_bytes)
        if record.error is None and not layout.fits(record.contents, _GEOMETRY.slot_bytes):
            return
        open_batch = OpenBatch(0, self._slot, layout, _GEOMETRY, 0, _GEOMETRY.batch)
        placed = 0
        while placed < 2 and not open_batch.full and open_batch.fits(record.contents):
            if record.error is None:
                open_batch.add(b"5-1", record)
            else:
                open_batch.refuse(b"5-1", record)
            placed += 1
        open_batch.close()
        if record.error is None:
            runs, broken = self._contents.decode(self._slot, range(placed))
            answered = [row for run in runs for row in run.rows] + [row for each in broken for row in each.rows]
            assert sorted(answered) == list(range(placed))


_PIPELINES = [
    _Pipeline(X),
    _Pipeline(FREE),
    _Pipeline(TEXT),
    _Pipeline(PIXELS),
    _Pipeline(X, Y),
    _Pipeline(),
    _Pipeline(FREE, options=DecodeOptions(calls=True)),
    _Pipeline(X, options=DecodeOptions(sparse_layout="nnz-major", encrypted=True)),
    _Pipeline(X, options=DecodeOptions(raw=True)),
]


def entry(content: bytes) -> None:
    """A stream entry, through the reader into a slot and out of it by a worker."""
    fields = content.split(SEPARATOR)
    with np.errstate(all="ignore"):
        for pipeline in _PIPELINES:
            pipeline(fields[: len(fields) // 2 * 2])


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    target.__name__: target
    for target in (native_tensor, native_result, original_record, original_result, json_record, image, entry)
}
