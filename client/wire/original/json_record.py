"""Record in the form of a JSON request body: `serde` = `stream` in the original dialect.

{"instances": [{"<input>": VALUE, ...}, ...]}         the first instance is the record

VALUE := number                                       tensor of shape [1]
       | nested list of numbers                       tensor
       | text                                         image, if the text is the base64 of an image, else one string
       | nested list of texts                         strings
       | {"b64": text}                                image
       | {"shape": [..], "data": [..], "indices": [[..], ..]}   sparse, a row of indices for each value
"""

import json
from itertools import chain
from typing import Any, cast

import numpy as np

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.original.values import (
    MAX_JSON_BYTES,
    DenseTensor,
    OriginalValue,
    StringTensor,
    dense_value,
    image_value,
    sparse_value,
    text_value,
)


def decode_json_record(body: bytes | str) -> list[tuple[str, OriginalValue]]:
    """Return the inputs of the first instance, by name, in the order of the model's inputs.

    Raises:
        CodecError: the body has another form. The message names the input.
    """
    if len(body) > MAX_JSON_BYTES:
        raise CodecError(f"the record's JSON has {len(body)} bytes; at most {MAX_JSON_BYTES} are read")
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"the record is not JSON: {error}") from error
    instances: Any = cast("dict[str, Any]", document).get("instances") if isinstance(document, dict) else None
    if not isinstance(instances, list) or not instances:
        raise CodecError("no instance can be found, please check your input or json(keyword should be 'instances')")
    instance: Any = instances[0]
    if not isinstance(instance, dict) or not instance:
        raise CodecError("the first instance is not a JSON object with at least one input")
    return [(name, _value(name, value)) for name, value in cast("dict[str, Any]", instance).items()]


def _value(name: str, value: Any) -> OriginalValue:
    match value:
        case str():
            return text_value(name, value)
        case list():
            return _array(name, value)
        case {"b64": str() as text}:
            return image_value(name, text)
        case {"shape": list() as shape, "data": list() as data, "indices": list() as indices}:
            places, places_shape = _flatten(name, indices) if indices else ([], (0, len(shape)))
            if {*map(type, places), *map(type, shape)} - {int}:
                raise CodecError(f"column {name!r}: shape and indices of a sparse tensor must be integers")
            try:
                positions = np.array(places, np.int32)
            except OverflowError as error:
                raise CodecError(f"column {name!r}: an index is 2**31 or more: {error}") from error
            return sparse_value(name, positions, places_shape, _numbers(name, data), shape, "nnz-major")
        case _:
            return _array(name, [value])


def _array(name: str, value: list[Any]) -> DenseTensor | StringTensor:
    items, shape = _flatten(name, value)
    kinds = set(map(type, items))
    if kinds == {str}:
        return StringTensor(items, shape)
    return dense_value(name, _numbers(name, items), shape)


def _flatten(name: str, value: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Return the items of a nested list in C order, and the shape of the list.

    One level is unnested at a time, so that the cost is in proportion to the text, for deep and for lopsided lists too.
    """
    shape: list[int] = []
    level: list[Any] = [value]
    while level and isinstance(level[0], list):
        lengths = {len(item) if isinstance(item, list) else -1 for item in level}
        if len(lengths) > 1:
            raise CodecError(f"column {name!r}: the nested list is ragged at depth {len(shape)}")
        shape += lengths
        level = list(chain.from_iterable(level))
    if not level:
        raise CodecError(f"column {name!r}: empty list is not supported")
    return level, tuple(shape)


def _numbers(name: str, items: list[Any]) -> Any:
    others = {*map(type, items)} - {int, float}
    if others:
        kinds = ", ".join(sorted(kind.__name__ for kind in others))
        raise CodecError(f"column {name!r} holds {kinds} where numbers are expected")
    with np.errstate(over="ignore"):
        try:
            return np.array(items, np.float32)
        except OverflowError as error:
            raise CodecError(f"column {name!r}: {error}") from error
