"""Values of a record for one model input: checked against its dtype and shape, converted where the conversion loses no value."""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.tensor_spec import MAX_DENSE_BYTES, TensorSpec, matches
from cluster_serving.client.wire.original import values as original
from cluster_serving.client.wire.tensors import Array, decode_tensor, encode_tensor, tensor_layout
from cluster_serving.node.processing.options import DecodeOptions

Content = memoryview | bytes | Array
Key = tuple[str, str, tuple[int, ...]]

_IMAGE: Key = ("image", "", ())
_TEXT: Key = ("string", "", ())
_TEXTS: Key = ("strings", "", ())
_RECORD: Key = ("record", "", ())
_NESTED: Key = ("nested", "", ())
_MAX_HEADERS = 4096
SHARED = "tensor:"
"""Kind of a shared tensor in a signature. The digest of its content follows."""
_PADDED = "padded"


def array_of(key: Key, content: Content) -> Array:
    """Return the content of a tensor as an array of the dtype and shape of its key."""
    _, dtype, shape = key
    if isinstance(content, np.ndarray):
        return content.astype(dtype).reshape(shape)
    return np.ndarray(shape, dtype, content)


class InputValue(NamedTuple):
    """Value of a record for one model input, ready for the slot.

    `key` is the input's part of the slot's signature. `content` goes into the slot. An array has another dtype, and is converted on
    its way into the slot. `rows` is the batch dimension that the value carried, or `None` for a value without a batch dimension.
    `shape` is the shape of the value with this dimension.
    """

    key: Key
    content: Content
    rows: int | None = None
    shape: tuple[int, ...] = ()

    @property
    def whole_key(self) -> Key:
        """Part of the signature for a record that is a batch by itself."""
        kind, dtype, shape = self.key
        return (
            _TEXTS
            if kind == "string"
            else ("whole", dtype, shape if self.rows is None and -1 not in shape else self.shape)
        )


class _Known(NamedTuple):
    """Known header of a tensor message: key of the value, begin and end of the data, and dtype of the data."""

    key: Key
    start: int
    end: int
    dtype: np.dtype[Any]

    def contents(self, messages: Sequence[bytes]) -> list[Content]:
        """Return the contents of messages with this header."""
        start, end, dtype = self.start, self.end, self.dtype
        if dtype.str == self.key[1]:
            return [memoryview(message)[start:end] for message in messages]
        count = (end - start) // dtype.itemsize
        return [np.ndarray(count, dtype, message, start) for message in messages]


class ModelInput:
    """Model input as the reader sees it: checks and converts the values of records."""

    _converts_in_slot = True
    """A value whose conversion cannot fail is converted on its way into the slot."""

    def __init__(self, spec: TensorSpec, options: DecodeOptions) -> None:
        self.spec = spec
        self._is_call = options.calls and spec.batch_axis is None
        self._kind = "whole" if self._is_call else "tensor"
        self._options = options
        self._is_text = spec.is_text
        self._is_numeric = spec.is_numeric
        self._dtype = np.dtype(spec.dtype if spec.is_numeric else object)
        self._row = spec.row_shape
        # For the header of each tensor message whose data go into the slot as they are, or widened there.
        self._known: dict[bytes, _Known] = {}

    def tensor_message(self, message: bytes) -> InputValue:
        """Return the tensor of a message. The data are not copied when the input needs no conversion.

        Raises:
            CodecError: the message holds no tensor, or a tensor that does not fit the input.
        """
        layout = tensor_layout(message)
        if layout is None or (self._row is not None and not matches(layout.shape, self._row)):
            return self.tensor(decode_tensor(message))
        if layout.dtype != self._dtype and not self._is_converted_in_slot(
            layout.dtype, layout.nbytes // layout.dtype.itemsize
        ):
            return self.tensor(decode_tensor(message))
        end = layout.offset + layout.nbytes
        known = _Known((self._kind, self._dtype.str, layout.shape), layout.offset, end, layout.dtype)
        if len(self._known) < _MAX_HEADERS:
            self._known[message[: layout.offset]] = known
        [content] = known.contents([message])
        return InputValue(known.key, content)

    def alike(self, messages: Sequence[bytes]) -> tuple[Key, list[Content]] | None:
        """Return the key of tensors with equal headers, and the data of each tensor.

        The result is `None` unless all messages share a header that `tensor_message` has accepted, and no conversion can fail.
        """
        first = messages[0]
        known = self._known.get(first[: 8 + int.from_bytes(first[4:8], "little")])
        if known is None:
            return None
        header = first[: known.start]
        if min(map(len, messages)) < known.end or not all(map(bytes.startswith, messages, repeat(header))):
            return None
        return known.key, known.contents(messages)

    def tensor(self, array: Array) -> InputValue:
        """Convert a tensor of any dtype and shape.

        Raises:
            CodecError: the shape does not fit the input, or the values do not convert to the input's dtype without loss.
        """
        if not self._is_numeric:
            takes = "text" if self._is_text else f"a {self.spec.dtype}"
            raise CodecError(f"input {self.spec.name!r} takes {takes}, not a tensor of {array.dtype}")
        rows, shape = self.spec.fitted(array)
        key = (self._kind, self._dtype.str, shape)
        if array.dtype != self._dtype and self._is_converted_in_slot(array.dtype, array.size):
            return InputValue(key, np.ascontiguousarray(array).reshape(-1), rows, array.shape)
        converted = np.ascontiguousarray(self.spec.converted(array))
        # memoryview.cast would refuse arrays without elements.
        return InputValue(key, converted.reshape(-1).view(np.uint8).data, rows, array.shape)

    def _is_converted_in_slot(self, dtype: np.dtype[Any], count: int) -> bool:
        """Return whether an array of another dtype is converted on its way into the slot."""
        return self._converts_in_slot and self._is_numeric and self.spec.widens(dtype, count)

    def image(self, encoded: bytes) -> InputValue:
        """Return an encoded image, or bytes for an input of text that takes them, as they are. A worker decodes the image.

        Raises:
            CodecError: the input takes text alone.
        """
        if not self._is_numeric and not self.spec.takes_bytes:
            raise CodecError(
                f"input {self.spec.name!r} takes {'text' if self._is_text else self.spec.kind}, not an image"
            )
        return InputValue(_IMAGE, encoded)

    def text(self, encoded: bytes) -> InputValue:
        """Return text, given as JSON of a string or of nested lists of strings.

        Raises:
            CodecError: the input takes numbers, or the text is not JSON.
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
        try:
            shape = np.array(texts, dtype=object).shape
        except ValueError:  # ragged: the worker reports the error
            return InputValue(_TEXT, encoded)
        array = np.broadcast_to(np.empty((), object), shape)
        if self._is_call:
            self.spec.fitted(array)
            return InputValue(_TEXTS, encoded)
        try:
            rows, _ = self.spec.fitted(array)
        except CodecError:  # the worker reports the error
            rows = None
        return InputValue(_TEXT, encoded, rows)

    def nested(self, encoded: bytes) -> InputValue:
        """Return a nested value as it is. A worker decodes the value.

        Raises:
            CodecError: the input takes an array.
        """
        if not self.spec.is_nested:
            raise CodecError(f"input {self.spec.name!r} takes {self.spec.kind}, not a sequence")
        return InputValue(_NESTED, encoded)

    def sparse(self, indices: Array, values: Array, shape: Array) -> InputValue:
        """Convert a sparse tensor to a dense tensor.

        Args:
            indices: `(rank, nnz)` or `(nnz, rank)`, or `(nnz,)` for rank 1.
            values: `(nnz,)`.
            shape: `(rank,)`.

        Raises:
            CodecError: an index lies outside the shape, or the shape does not fit the input.
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
        """Convert a value of the original dialect.

        Raises:
            CodecError: the value does not fit the input.
        """
        match value:
            case original.DenseTensor(array):
                return self.tensor(array)
            case original.SparseTensor(indices, values, shape):
                return self._dense(indices, values, shape)
            case original.EncodedImage(content):
                return self.image(content)
            case original.StringTensor([text], _) if self._options.encrypted and not self._is_text:
                return self.image(text.encode())  # base64 of an encrypted image, decrypted by the worker
            case original.StringTensor(strings, shape):
                return self.text(_json(strings, shape))


class SharedInput(ModelInput):
    """Model input without a batch dimension, for a model of rows. Records with equal values share a batch."""

    _converts_in_slot = False

    def tensor_message(self, message: bytes) -> InputValue:
        """Return the tensor of a message, as `ModelInput.tensor_message` does."""
        return _shared(super().tensor_message(message))

    def alike(self, messages: Sequence[bytes]) -> tuple[Key, list[Content]] | None:
        """Return the key and the data of equal messages, as `ModelInput.alike` does."""
        found = super().alike(messages) if messages.count(messages[0]) == len(messages) else None
        if found is None:
            return None
        key, contents = found
        return _shared(InputValue(key, contents[0])).key, contents

    def tensor(self, array: Array) -> InputValue:
        """Convert a tensor, as `ModelInput.tensor` does."""
        return _shared(super().tensor(array))


class PaddedInput(ModelInput):
    """Model input whose rows may have different lengths in a batch: the only free dimension of a row is the length."""

    _converts_in_slot = False

    def tensor_message(self, message: bytes) -> InputValue:
        """Return the tensor of a message, as `ModelInput.tensor_message` does."""
        return self._padded(super().tensor_message(message))

    def alike(self, messages: Sequence[bytes]) -> None:
        """Return None: rows of variable length are put into a slot one by one."""

    def tensor(self, array: Array) -> InputValue:
        """Convert a tensor, as `ModelInput.tensor` does."""
        return self._padded(super().tensor(array))

    def _padded(self, value: InputValue) -> InputValue:
        """Return a value whose key leaves the length open."""
        kind, dtype, shape = value.key
        row = tuple([-1 if dim is None else dim for dim in self.spec.row_shape or ()])
        if kind == _PADDED or 0 in row:  # an array without elements does not tell its length
            return value
        return value._replace(key=(_PADDED, dtype, row), shape=value.shape or shape)


def _shared(value: InputValue) -> InputValue:
    """Return a value whose key tells its content, so that only equal values meet in a slot."""
    kind, dtype, shape = value.key
    if kind.startswith(SHARED):
        return value
    content = value.content
    assert not isinstance(content, np.ndarray)  # noqa: S101 - `_converts_in_slot` is false
    return value._replace(key=(SHARED + blake2b(content, digest_size=16).hexdigest(), dtype, shape))


def model_input(spec: TensorSpec, options: DecodeOptions) -> ModelInput:
    """Return the input for a spec: shared if it has no batch dimension, and the records are rows."""
    if spec.name in options.padded:
        return PaddedInput(spec, options)
    return (SharedInput if spec.batch_axis is None and not options.calls else ModelInput)(spec, options)


def raw_record(fields: Mapping[bytes, bytes]) -> InputValue:
    """Return the native fields of a whole record unchanged, packed as msgpack, for `preprocess` in a worker."""
    return InputValue(_RECORD, msgspec.msgpack.encode(fields))


def original_field(name: str, value: original.OriginalValue, encrypted: bool) -> tuple[bytes, bytes]:
    """Return the native field for a value of the original dialect. `encrypted` images look like texts in the original dialect.

    Raises:
        CodecError: a sparse tensor cannot be made dense.
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
    """Return strings in C order as JSON of nested lists."""
    return json.dumps(np.array(strings, dtype=object).reshape(shape).tolist()).encode()
