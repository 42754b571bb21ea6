"""Readable view of a record's fields: kind, dtype, shape, size and a preview of the content.

The content of a record is not trusted here either. The record may have crashed a worker, so no image is decoded, and no tensor is
decompressed.
"""

import math
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.wire.compression import read
from cluster_serving.client.wire.original import values as original
from cluster_serving.client.wire.original.decode import decode_record
from cluster_serving.client.wire.original.json_record import decode_json_record
from cluster_serving.client.wire.tensors import Array, decode_tensor

_VALUES = 6
_TEXT = 60
_ENVELOPE = (keys.URI, keys.REPLY, keys.DEADLINE, keys.TRACEPARENT, keys.SERDE)
_TENSORS = {
    keys.TENSOR: "tensor",
    keys.BOOL: "bool",
    keys.SPARSE_INDICES: "sparse indices",
    keys.SPARSE_VALUES: "sparse values",
    keys.SPARSE_SHAPE: "sparse shape",
}
_IMAGES = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"II*\x00": "TIFF",
    b"MM\x00*": "TIFF",
    b"\x00\x00\x00\x0cjP  ": "JPEG 2000",
}


class FieldView(msgspec.Struct, frozen=True, omit_defaults=True):
    """View of one field, or of one column of an original record's `data`.

    Attributes:
        kind: tensor, bool, sparse ..., compressed, image, string, text, original or unknown.
        size: in bytes.
        preview: beginning of the content. Empty where the content must not be shown.
        problem: reason why the content cannot be read.
    """

    name: str
    kind: str
    size: int
    dtype: str = ""
    shape: list[int] | None = None
    preview: str = ""
    problem: str = ""


def view_fields(fields: Sequence[tuple[bytes, bytes]], *, hide_content: bool = False) -> Iterator[FieldView]:
    """Yield a view of each field of a record. After the field `data` of the original dialect come the views of its columns.

    Args:
        fields: fields of a request, in either dialect.
        hide_content: show no content, for example because records are encrypted.
    """
    is_json = dict(fields).get(keys.SERDE) == b"stream"
    for field, content in fields:
        if field == keys.DATA:
            yield FieldView("data", "original", len(content), "JSON" if is_json else "Arrow")
            yield from (_blank(view) if hide_content else view for view in _columns(content, is_json))
        else:
            view = _view(field, content)
            yield _blank(view) if hide_content and field not in _ENVELOPE else view


def _blank(view: FieldView) -> FieldView:
    return msgspec.structs.replace(view, preview="")


def _view(field: bytes, content: bytes) -> FieldView:
    name = field.decode(errors="replace")
    kind = field.partition(b":")[0] + b":"
    try:
        if kind in _TENSORS:
            return _array(name, _TENSORS[kind], decode_tensor(content), len(content))
        if kind == keys.COMPRESSED:
            tensor = read(content)
            return FieldView(name, "compressed", len(content), tensor.dtype, list(tensor.shape), tensor.codec)
    except Exception as error:  # any fault of the content is shown to the user
        return FieldView(name, _TENSORS.get(kind, "compressed"), len(content), problem=str(error))
    if kind == keys.IMAGE:
        return FieldView(name, "image", len(content), image_kind(content))
    if kind == keys.STRING:
        return FieldView(name, "string", len(content), "JSON", preview=_cut(content))
    try:
        is_text = content.decode().isprintable()
    except UnicodeDecodeError:
        is_text = False
    return FieldView(name, "text" if is_text else "unknown", len(content), preview=_cut(content))


def _columns(content: bytes, is_json: bool) -> Iterator[FieldView]:
    try:
        columns = decode_json_record(content) if is_json else decode_record(content)
    except Exception as error:  # as above
        yield FieldView("data", "unknown", len(content), problem=str(error))
        return
    for column, value in columns:
        name = f"data: {column}"
        match value:
            case original.DenseTensor(array):
                yield _array(name, "tensor", array, array.nbytes)
            case original.SparseTensor(indices, values, shape):
                view = _array(name, "sparse", values, indices.nbytes + values.nbytes)
                yield msgspec.structs.replace(view, shape=list(shape))
            case original.EncodedImage(image):
                yield FieldView(name, "image", len(image), image_kind(image))
            case original.StringTensor(strings, shape):
                texts = [text.encode(errors="replace") for text in strings]
                preview = _cut(b", ".join(texts[:_VALUES]))
                yield FieldView(name, "string", sum(map(len, texts)), shape=list(shape), preview=preview)


def _array(name: str, kind: str, array: Array, size: int) -> FieldView:
    if kind == "bool":
        array = array.astype(np.bool_)
    return FieldView(name, kind, size, str(array.dtype), list(array.shape), first_values(array))


def first_values(array: Array) -> str:
    """Return the beginning of an array of numbers or bools, in C order."""
    first = array.reshape(-1)[:_VALUES].tolist()
    values = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in first]
    more = ["..."] if math.prod(array.shape) > len(values) else []
    return ", ".join(values + more)


def image_kind(content: bytes) -> str:
    """Return the format of an encoded image, judged by its first bytes."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "WebP"
    if content[4:8] == b"ftyp":
        return "AVIF"
    return next((kind for start, kind in _IMAGES.items() if content.startswith(start)), "no known format")


def _cut(content: bytes) -> str:
    """Return the beginning of a text, or of other bytes in hexadecimal."""
    head = content[: 4 * _TEXT]
    try:
        text = getincrementaldecoder("utf-8")().decode(head, final=len(head) == len(content))
    except UnicodeDecodeError:
        text = content[: _TEXT // 3].hex(" ")
        return f"{text} ..." if len(content) > _TEXT // 3 else text
    return f"{text[:_TEXT]}..." if len(text) > _TEXT or len(head) < len(content) else text
