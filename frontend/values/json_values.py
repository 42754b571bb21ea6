"""One value of a JSON instance to the native fields of one input, checked against the model's input.

    VALUE := number, true, false                    tensor of shape []
           | (nested) list of these                 tensor
           | text                                   image, in base64 (`data:image/png;base64,` may stand in front), or text for
                                                    an input of text
           | (nested) list of text                  text
           | {"b64": text}                          image, or the UTF-8 of a text for an input of text, or any bytes if the
                                                    input takes them
           | {"shape": [..], "data": [..], "indices": [[..], ..]}    sparse tensor, with a row of indices for each value
           | bytes                                  uploaded file: image, or any bytes if the input takes them
           | list of (nested) lists of numbers, or null           sequence of tensors, for an input that is a sequence

For an input that is not known, a text is an image if the text is the base64 of an image.
"""

import struct
from typing import Any, NoReturn, cast

import numpy as np
import orjson

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.nested import encode_nested
from cluster_serving.client.wire.original.base64_text import from_base64
from cluster_serving.client.wire.original.values import EncodedImage, text_value
from cluster_serving.client.wire.tensors import Array, encode_tensor, tensor_header
from cluster_serving.frontend.values.json_numbers import PACKED, flatten, natural, numbers
from cluster_serving.frontend.values.json_sparse import sparse_fields

Fields = list[bytes]

_IMAGE_RANKS = (2, 3)  # of a row: height, width, perhaps channels
_SHOWN = 60


class JsonInput:
    """One input, as given in the JSON of requests.

    Args:
        spec: input of the model, or `None` for the user's own `preprocess`, which takes everything. Nothing is checked then.
        name: name of the input on the wire.
    """

    def __init__(self, spec: TensorSpec | None, name: str) -> None:
        self._spec = spec
        self._name = name
        self._wire_name = name.encode()
        self._is_text = spec is not None and spec.is_text
        self._takes_bytes = spec is not None and spec.takes_bytes
        self._is_nested = spec is not None and spec.is_nested
        self._is_open = spec is None or spec.shape is None
        self._tensor = keys.TENSOR + self._wire_name
        self._length = -1
        row = None if spec is None else spec.row_shape
        if spec is not None and row is not None and len(row) == 1 and row[0] is not None:
            code = PACKED.get(spec.dtype)
            if code is not None and np.dtype(spec.dtype) == np.dtype(code):
                # All rows of one dimension of known length share a header.
                self._length, self._pack = row[0], struct.Struct(f"={row[0]}{code}").pack
                self._header = tensor_header(np.dtype(spec.dtype), (row[0],))

    def fields(self, value: Any) -> Fields:
        """Return `field, value, ...`.

        Raises:
            CodecError: the value does not follow the grammar, or does not fit the model.
        """
        if type(value) is list and len(value) == self._length:
            try:
                return [self._tensor, self._header + self._pack(*value)]  # a third of numpy's time
            except (struct.error, OverflowError):
                pass  # the row is not of the usual form, and needs a closer look
        if self._is_nested:
            return self._sequence(value)
        match value:
            case str():
                return self._text(value)
            case dict():
                return self._object(cast("dict[str, Any]", value))
            case bytes():
                return self._image(value)
            case _:
                return self._list(value)

    def _list(self, value: Any) -> Fields:
        """Return the fields of nested lists, or of a single number."""
        leaves, shape = flatten(self._name, value)
        if self._takes_bytes and len(leaves) == 1 and isinstance(leaves[0], dict):
            return self._object(cast("dict[str, Any]", leaves[0]))
        if any(type(leaf) in (str, dict) for leaf in leaves[:1]):
            texts: list[Any] = []
            for leaf in leaves:
                match leaf:
                    case {"b64": str() as encoded}:
                        texts.append(_bytes_as_text(self._name, encoded))
                    case _:
                        texts.append(leaf)
            if {*map(type, texts)} != {str}:
                raise CodecError(f"input {self._name!r} is a list of text and of values that are not text")
            if not (self._is_text or self._is_open):
                self._refuse("lists of text")
            return self._string(np.array(texts, object).reshape(shape).tolist(), shape)
        self._refuse_for_text("numbers")
        found = natural(self._name, leaves) if self._spec is None else numbers(self._spec, leaves)
        found = found.reshape(shape)
        self._check_shape(found)
        if found.dtype == np.bool_:
            return [keys.BOOL + self._wire_name, encode_tensor(found.view(np.uint8))]
        return [self._tensor, encode_tensor(found)]

    def _sequence(self, value: Any) -> Fields:
        """Return the fields of a list of arrays, or of null. The node gives the arrays the dtype of the input."""
        if value is not None and not isinstance(value, list):
            self._refuse("a value that is no list")
        items: list[Any] = value or []
        arrays: list[Array] = []
        for item in items:
            leaves, shape = flatten(self._name, item)
            arrays.append(natural(self._name, leaves).reshape(shape))
        return [keys.NESTED + self._wire_name, encode_nested(None if value is None else arrays)]

    def _text(self, text: str) -> Fields:
        if self._is_text:
            return self._string(text, ())
        head, comma, rest = text.partition(",")
        if comma and head.startswith("data:") and head.endswith(";base64"):
            text = rest
        elif self._is_open:
            found = text_value(self._name, text)
            return self._image(found.content) if isinstance(found, EncodedImage) else self._string(text, ())
        if not text:
            raise CodecError(f"input {self._name!r} is an empty text")
        self._check_image_fits()
        return self._image(from_base64(text, f"the image of input {self._name!r}"))

    def _image(self, content: bytes) -> Fields:
        self._check_image_fits()
        return [keys.IMAGE + self._wire_name, content]

    def _check_image_fits(self) -> None:
        if self._takes_bytes:
            return
        row = None if self._spec is None else self._spec.row_shape
        # A call has the batch dimension of the model, which a node adds to an image.
        ranks = _IMAGE_RANKS if self._spec is None or self._spec.batch_axis is not None else (*_IMAGE_RANKS, 4)
        if self._is_text or (row is not None and len(row) not in ranks):
            self._refuse("an image, or text")

    def _string(self, texts: Any, shape: tuple[int, ...]) -> Fields:
        if self._is_text:
            try:
                self._check_shape(np.broadcast_to(np.empty((), object), shape))
            except CodecError as error:
                raise CodecError(f"input {self._name!r} takes {self._kind}, not text of shape {list(shape)}") from error
        return [keys.STRING + self._wire_name, orjson.dumps(texts)]

    def _object(self, value: dict[str, Any]) -> Fields:
        match value:
            case {"b64": str() as text} if self._is_text and not self._takes_bytes:
                return self._string(_bytes_as_text(self._name, text), ())
            case {"b64": str() as text}:
                return self._image(from_base64(text, f"the 'b64' of input {self._name!r}"))
            case {"shape": list() as shape, "data": list() as data, "indices": list() as indices}:
                self._refuse_for_text("a sparse tensor")
                return sparse_fields(self._spec, self._name, shape, data, indices)
            case _:
                found = ", ".join(f"{key[:_SHOWN]!r}" for key in list(value)[:4]) or "no keys"
                raise CodecError(
                    f"input {self._name!r} is an object with {found}; it needs the text 'b64', or the lists 'shape', 'data' "
                    "and 'indices'"
                )

    def _check_shape(self, found: Array) -> None:
        if self._spec is not None:
            self._spec.fitted(found)

    @property
    def _kind(self) -> str:
        return "" if self._spec is None else self._spec.kind

    def _refuse_for_text(self, what: str) -> None:
        if self._is_text:
            self._refuse(what)

    def _refuse(self, what: str) -> NoReturn:
        raise CodecError(f"input {self._name!r} takes {self._kind}, not {what}")


def _bytes_as_text(name: str, encoded: str) -> str:
    try:
        return from_base64(encoded, f"the 'b64' of input {name!r}").decode()
    except UnicodeDecodeError as error:
        raise CodecError(f"input {name!r} takes text, and its 'b64' is not UTF-8: {error}") from error
