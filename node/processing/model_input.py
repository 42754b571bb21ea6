"""One value of a record for one input of the model: checked against its dtype and shape, converted where nothing is lost."""

import json
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec
import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.tensor_spec import MAX_DENSE_BYTES, TensorSpec, matches
from cluster_serving.client.wire.original import values as original
from cluster_serving.client.wire.tensors import Array, decode_tensor, encode_tensor, tensor_layout
from cluster_serving.node.processing.options import DecodeOptions

Content = memoryview | bytes
Key = tuple[str, str, tuple[int, ...]]

_IMAGE: Key = ("image", "", ())
_TEXT: Key = ("string", "", ())
_TEXTS: Key = ("strings", "", ())
_RECORD: Key = ("record", "", ())
_MAX_HEADERS = 4096


class InputValue(NamedTuple):
    """What goes into the slot, and its part of the signature; `rows`: the batch dimension that it carried, if it did."""

    key: Key
    content: Content
    rows: int | None = None

    @property
    def whole_key(self) -> Key:
        """Its part of the signature where the record is a batch by itself."""
        kind, dtype, shape = self.key
        return ("whole", dtype, (self.rows or 0, *shape)) if kind == "tensor" else _TEXTS


class ModelInput:
    """One input of the model, as the reader sees it."""

    def __init__(self, spec: TensorSpec, options: DecodeOptions) -> None:
        self.spec = spec
        self._options = options
        self._is_text = spec.is_text
        self._dtype = np.dtype(object if spec.is_text else spec.dtype)
        self._row = spec.row_shape
        # By the header of a tensor message that fits as it is: its key, and where the data begin and end.
        self._exact: dict[bytes, tuple[Key, int, int]] = {}

    def tensor_message(self, message: bytes) -> InputValue:
        """A tensor from its message; its data are not copied when they fit as they are.

        Raises:
            CodecError: not a tensor, or not one that this input takes.
        """
        layout = tensor_layout(message)
        if layout is None or self._is_text or layout.dtype != self._dtype or not self._is_row(layout.shape):
            return self.tensor(decode_tensor(message))
        key, end = ("tensor", layout.dtype.str, layout.shape), layout.offset + layout.nbytes
        if len(self._exact) < _MAX_HEADERS:
            self._exact[message[: layout.offset]] = (key, layout.offset, end)
        return InputValue(key, memoryview(message)[layout.offset : end])

    def alike(self, messages: Sequence[bytes]) -> tuple[Key, list[Content]] | None:
        """Tensors whose messages have one header, which `tensor_message` has found to fit: their key, and the data of each."""
        first = messages[0]
        found = self._exact.get(first[: 8 + int.from_bytes(first[4:8], "little")])
        if found is None:
            return None
        key, start, end = found
        header = first[:start]
        if min(map(len, messages)) < end or not all(map(bytes.startswith, messages, repeat(header))):
            return None
        return key, [memoryview(message)[start:end] for message in messages]

    def tensor(self, array: Array) -> InputValue:
        """A tensor of any dtype and shape.

        Raises:
            CodecError: the input takes another shape, or the values cannot become its dtype without loss.
        """
        if self._is_text:
            raise CodecError(f"input {self.spec.name!r} takes text, not a tensor of {array.dtype}")
        rows, shape = self.spec.fitted(array, self._options.already_batched)
        converted = np.ascontiguousarray(self.spec.converted(array))
        # Not memoryview.cast, which refuses arrays without elements.
        return InputValue(("tensor", converted.dtype.str, shape), converted.reshape(-1).view(np.uint8).data, rows)

    def _is_row(self, shape: tuple[int, ...]) -> bool:
        return self.spec.is_row(shape, self._options.already_batched)

    def image(self, encoded: bytes) -> InputValue:
        """An encoded image; a worker decodes it.

        Raises:
            CodecError: the input takes text.
        """
        if self._is_text:
            raise CodecError(f"input {self.spec.name!r} takes text, not an image")
        return InputValue(_IMAGE, encoded)

    def text(self, encoded: bytes) -> InputValue:
        """JSON of a string or nested lists of them.

        Raises:
            CodecError: the input takes numbers, or this is not JSON.
        """
        if not self._is_text:
            raise CodecError(f"input {self.spec.name!r} takes {self.spec.kind}, not text")
        if len(encoded) > original.MAX_JSON_BYTES:
            raise CodecError(
                f"input {self.spec.name!r} has {len(encoded)} bytes of JSON; at most {original.MAX_JSON_BYTES} are read"
            )
        try:
            texts = json.loads(encoded)
        except (ValueError, RecursionError) as error:
            raise CodecError(f"input {self.spec.name!r} is not JSON: {error}") from error
        return InputValue(_TEXT, encoded, self._text_rows(texts))

    def _text_rows(self, texts: object) -> int | None:
        """The batch dimension that text carries, if it does."""
        try:
            shape = np.array(texts, dtype=object).shape
        except ValueError:  # ragged: the worker says so
            return None
        if self._is_row(shape) or not shape or (self._row is not None and not matches(shape[1:], self._row)):
            return None
        return shape[0] or None

    def sparse(self, indices: Array, values: Array, shape: Array) -> InputValue:
        """A sparse tensor, made dense: indices (rank, nnz) or (nnz, rank), or (nnz,) of rank 1; values (nnz,), shape (rank,).

        Raises:
            CodecError: an index lies outside the shape, or the input takes another shape.
        """
        if indices.dtype.kind not in "iu" or shape.dtype.kind not in "iu" or shape.ndim != 1:
            raise CodecError(
                f"input {self.spec.name!r}: sparse indices and shape are integers, not {indices.dtype} and "
                f"{shape.dtype} {list(shape.shape)}"
            )
        rank, nnz = shape.size, values.size
        if rank == 1 and indices.shape == (nnz,):
            indices = indices.reshape(1, nnz)
        if indices.shape == (nnz, rank) and (rank != nnz or self._options.sparse_layout == "nnz-major"):
            indices = indices.T
        return self._dense(indices, values, shape.tolist())

    def _dense(self, indices: Array, values: Array, shape: Sequence[int]) -> InputValue:
        return self.tensor(original.densify(indices, values, shape, max_bytes=MAX_DENSE_BYTES))

    def original_value(self, value: original.OriginalValue) -> InputValue:
        """A value of the original dialect.

        Raises:
            CodecError: it does not fit the input.
        """
        match value:
            case original.DenseTensor(array):
                return self.tensor(array)
            case original.SparseTensor(indices, values, shape):
                return self._dense(indices, values, shape)
            case original.EncodedImage(content):
                return self.image(content)
            case original.StringTensor([text], _) if self._options.encrypted and not self._is_text:
                return self.image(text.encode())  # base64, which the worker opens
            case original.StringTensor(strings, shape):
                return self.text(_json(strings, shape))


def raw_record(fields: Mapping[bytes, bytes]) -> InputValue:
    """All inputs of a record as the native fields that they came in, for `preprocess` in a worker; msgpack."""
    return InputValue(_RECORD, msgspec.msgpack.encode(fields))


def original_field(name: str, value: original.OriginalValue, encrypted: bool) -> tuple[bytes, bytes]:
    """A value of the original dialect as the native field that says the same; `encrypted` images look like texts in it.

    Raises:
        CodecError: a sparse tensor that cannot be made dense.
    """
    match value:
        case original.DenseTensor(array):
            return keys.TENSOR + name.encode(), encode_tensor(array)
        case original.SparseTensor(indices, values, shape):
            dense = original.densify(indices, values, shape, max_bytes=MAX_DENSE_BYTES)
            return keys.TENSOR + name.encode(), encode_tensor(dense)
        case original.EncodedImage(content):
            return keys.IMAGE + name.encode(), content
        case original.StringTensor([text], _) if encrypted:
            return keys.IMAGE + name.encode(), text.encode()
        case original.StringTensor(strings, shape):
            return keys.STRING + name.encode(), _json(strings, shape)


def _json(strings: Sequence[str], shape: tuple[int, ...]) -> bytes:
    """Strings in C order as nested lists."""
    return json.dumps(np.array(strings, dtype=object).reshape(shape).tolist()).encode()
