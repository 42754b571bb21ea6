"""Response of `infer`: a JSON head, followed by the data of the outputs wanted in binary."""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from cluster_serving.client.wire.bytes_in_text import bytes_of
from cluster_serving.client.wire.tensors import Array
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.v2.asked import Asked, Wanted
from cluster_serving.frontend.v2.classification import classify
from cluster_serving.frontend.v2.datatypes import BYTES, datatype_of

_LENGTH = struct.Struct("<I")


def encode_response(
    head: Mapping[str, Any], outputs: Mapping[str, Array], asked: Asked, batched: bool
) -> tuple[bytes, int | None]:
    """Return the body of a response, and the length of its head.

    Args:
        head: name and version of the model.
        outputs: outputs by name.
        asked: wanted outputs and their form.
        batched: whether the first dimension of the outputs is the rows.

    Returns:
        The body, and the number of its bytes that are the JSON head. None: all bytes.

    Raises:
        BadRequest: a wanted output does not exist, classes are wanted of a text, or JSON of bytes that are no text.
    """
    described: list[dict[str, Any]] = []
    binary: list[bytes] = []
    for each in asked.outputs or [Wanted(name, asked.all_binary) for name in outputs]:
        if each.name not in outputs:
            raise BadRequest(f"there is no output {each.name!r}; the model gives {', '.join(map(repr, outputs))}")
        array = outputs[each.name]
        if each.classes:
            if datatype_of(array.dtype.name) == BYTES:
                raise BadRequest(f"output {each.name!r} is text, which has no classes")
            array = classify(array, each.classes, batched)
        tensor: dict[str, Any] = {"name": each.name, "datatype": datatype_of(array.dtype.name), "shape": array.shape}
        if each.binary:
            data = _binary(array)
            binary.append(data)
            tensor["parameters"] = {"binary_data_size": len(data)}
        elif array.dtype.kind == "O":
            tensor["data"] = _texts(each.name, array)
        else:
            tensor["data"] = np.ascontiguousarray(array).reshape(-1)
        described.append(tensor)
    named = {**head, "id": asked.id} if asked.id else head
    text = orjson.dumps({**named, "outputs": described}, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join([text, *binary]), len(text)) if binary else (text, None)


def _binary(array: Array) -> bytes:
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    texts = [bytes_of(text) for text in array.reshape(-1)]
    return b"".join(part for text in texts for part in (_LENGTH.pack(len(text)), text))


def _texts(name: str, array: Array) -> list[str]:
    try:
        return [bytes_of(text).decode() for text in array.reshape(-1)]
    except UnicodeDecodeError as error:
        raise BadRequest(f"output {name!r} holds bytes that are not UTF-8 text: ask for it with binary_data") from error
