"""Conversion of whole records by the user's `preprocess`: from native fields to the arrays of the model inputs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.bytes_in_text import text_of
from cluster_serving.client.wire.nested import decode_nested
from cluster_serving.client.wire.original.values import MAX_JSON_BYTES
from cluster_serving.client.wire.tensors import decode_tensor, refuse_masked
from cluster_serving.node.models.base import Array, TensorSpec, open_inputs
from cluster_serving.node.processing.custom import Processing
from cluster_serving.node.processing.model_input import ModelInput, array_of
from cluster_serving.node.processing.options import DecodeOptions

_decode = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode
_OPTIONS = DecodeOptions()


class Preprocessor:
    """Converter of records to rows of one model.

    Args:
        processing: the user's object.
        inputs: inputs of the model. An empty sequence stands for any number of tensors.
        open_image: decrypts an encrypted image.
    """

    def __init__(
        self, processing: Processing, inputs: Sequence[TensorSpec], open_image: Callable[[bytes], bytes]
    ) -> None:
        self._processing = processing
        self._inputs = inputs
        self._takes = ", ".join(spec.describe() for spec in inputs) or "one or more tensors"
        self._open_image = open_image

    def __call__(self, content: bytes) -> list[Array]:
        """Return one row: an array for each input, without the batch dimension.

        Args:
            content: record packed by `model_input.raw_record`.

        Raises:
            UserFault: `preprocess` failed.
            ValueError: the record is broken, or the values returned by `preprocess` do not fit the model.
        """
        answer = self._processing.preprocess(decode_record(content, self._open_image))
        row: list[Array] = []
        try:
            for spec, value in self._bound(answer):
                if not spec.is_numeric:
                    row.append(text_row(spec, value) if spec.is_text else nested_row(spec, value))
                    continue
                refuse_masked(spec.name, value)
                fitted = ModelInput(spec, _OPTIONS).tensor(np.asarray(value))
                if fitted.rows not in (None, 1):
                    raise ValueError(f"input {spec.name!r} has {fitted.rows} rows, and a record has one")
                row.append(array_of(fitted.key, fitted.content))
        except (TypeError, ValueError) as error:
            raise ValueError(f"what preprocess returned: {error}") from error
        return row

    def _bound(self, answer: Any) -> list[tuple[TensorSpec, Any]]:
        if not isinstance(answer, dict):
            [only, *others] = self._inputs or open_inputs(1)
            if others or answer is None:
                raise ValueError(
                    f"a {type(answer).__name__}, and the model takes {self._takes}: return a dict of these"
                )
            return [(only, answer)]
        values = cast("dict[str, Any]", answer)
        if values and not self._inputs:
            return list(zip(open_inputs(len(values)), values.values(), strict=True))
        if not values or values.keys() != {spec.name for spec in self._inputs}:
            has = ", ".join(map(repr, values)) or "no values"
            raise ValueError(f"a dict of {has}, and the model takes {self._takes}")
        return [(spec, values[spec.name]) for spec in self._inputs]


def decode_record(content: bytes, open_image: Callable[[bytes], bytes]) -> dict[str, Any]:
    """Return a record's values by name: arrays, bytes of images, `str`, nested lists of `str`, or lists of arrays.

    Raises:
        ValueError: the bytes of a field do not match the kind in the field's name.
    """
    parts: dict[str, dict[bytes, bytes]] = {}
    for field, value in _decode(content).items():
        kind, colon, encoded = field.partition(b":")
        parts.setdefault(encoded.decode(errors="replace"), {})[kind + colon] = value
    record: dict[str, Any] = {}
    for name, fields in parts.items():
        try:
            record[name] = _value(name, fields, open_image)
        except ValueError as error:
            raise CodecError(f"input {name!r}: {error}") from error
    return record


def text_row(spec: TensorSpec, value: object) -> Array:
    """Return text as one row of an input: `str` objects, without a batch dimension of 1.

    Raises:
        ValueError: the value is not text throughout, or does not have the shape of the input.
    """
    array = text_array(spec, value)
    try:
        rows, row = spec.fitted(array)
    except CodecError:
        rows, row = 0, ()
    if rows not in (None, 1):
        raise ValueError(f"input {spec.name!r} takes {spec.kind}, not text of shape {list(array.shape)}")
    return array.reshape(row)


def text_array(spec: TensorSpec, value: object) -> Array:
    """Return text of any shape as `str` objects. For an input that takes bytes, a text stands for each `bytes` object.

    Raises:
        ValueError: the value is not text throughout, or is a ragged list of text.
    """
    array = np.array(value, dtype=object)
    if spec.takes_bytes:
        texts = [text_of(item) if isinstance(item, bytes) else item for item in array.flat]
        array = np.array(texts, dtype=object).reshape(array.shape)
    if not all(isinstance(item, str) for item in array.flat):
        raise ValueError(f"input {spec.name!r} takes text, and nested lists of text only if all have the same length")
    return array


def nested_row(spec: TensorSpec, value: object) -> Array:
    """Return a nested value as the only item of an array of objects. Its arrays have the dtype of the input.

    Raises:
        ValueError: the value is no sequence, or has items of another dtype.
    """
    row = np.empty(1, object)
    row[0] = _converted(spec, value)
    return row.reshape(())


def _converted(spec: TensorSpec, value: Any) -> Any:
    dtype = spec.dtype.removeprefix("sequence(").removesuffix(")")
    match value:
        case None:
            return None
        case list():
            return [_converted(spec, item) for item in value]
        case np.ndarray() if value.dtype.kind == "O" and dtype == "str":
            return value
        case np.ndarray() | int() | float() if dtype != "str":
            return TensorSpec(spec.name, dtype, None).converted(np.asarray(value))
        case _:
            raise ValueError(f"input {spec.name!r} takes a {spec.dtype}, and the value holds a {type(value).__name__}")


def _value(name: str, fields: Mapping[bytes, bytes], open_image: Callable[[bytes], bytes]) -> Any:
    match fields:
        case {keys.TENSOR: message}:
            return decode_tensor(message)
        case {keys.BOOL: message}:
            return decode_tensor(message).astype(np.bool_)
        case {keys.IMAGE: encoded}:
            return open_image(encoded)
        case {keys.NESTED: content}:
            return decode_nested(content)
        case {keys.STRING: encoded}:
            if len(encoded) > MAX_JSON_BYTES:
                raise ValueError(f"{len(encoded)} bytes of JSON; at most {MAX_JSON_BYTES} are read")
            return msgspec.json.decode(encoded)
        case {keys.SPARSE_INDICES: indices, keys.SPARSE_VALUES: values, keys.SPARSE_SHAPE: shape}:
            elements = decode_tensor(values)
            taker = ModelInput(TensorSpec(name, elements.dtype.name, None), _OPTIONS)
            value = taker.sparse(decode_tensor(indices), elements, decode_tensor(shape))
            return array_of(value.key, value.content)
        case _:
            raise ValueError("a sparse tensor needs its indices, values and shape")
