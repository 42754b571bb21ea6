"""What a program gives to the fields of a request."""

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import InvalidValue
from cluster_serving.client.wire.original.encode import encode_record as encode_original
from cluster_serving.client.wire.original.values import EncodedImage, text_value
from cluster_serving.client.wire.values import encode_record, encode_uri

Dialect = Literal["native", "original"]
Fields = list[bytes]


def request_fields(dialect: Dialect, uri: str, data: Mapping[str, Any]) -> Fields:
    """The fields of one request.

    Raises:
        InvalidValue: the uri or a value cannot be sent.
    """
    if dialect == "native":
        return encode_record(uri, data)
    return [keys.URI, encode_uri(uri), keys.DATA, encode_original(data).encode()]


def check_dialect(dialect: str) -> Dialect:
    """The dialect of that name.

    Raises:
        InvalidValue: there is none.
    """
    match dialect:
        case "native" | "original":
            return dialect
        case _:
            raise InvalidValue(f"dialect is 'native' or 'original', not {dialect!r}")


def as_inputs(request: Any) -> Mapping[str, Any]:
    """The inputs in what `predict` was given: a dict, JSON text with `instances`, or the value of the one input `t`.

    Raises:
        InvalidValue: JSON text without an instance, or with a value that is none.
    """
    if isinstance(request, dict):
        return cast(dict[str, Any], request)
    if isinstance(request, str):
        try:
            document = json.loads(request)
        except ValueError:
            return {"t": request}
        match document:
            case {"instances": [{} as instance, *_]}:
                return {name: _json_value(name, value) for name, value in cast(dict[str, Any], instance).items()}
            case _:
                raise InvalidValue(
                    "no instance can be found, please check your input or json(keyword should be 'instances')"
                )
    return cast(Mapping[str, Any], request) if isinstance(request, Mapping) else {"t": request}


def _json_value(name: str, value: Any) -> Any:
    """A value of the frontend's JSON: a text is an image if it is the base64 of one; sparse indices are (nnz, rank)."""
    try:
        match value:
            case str():
                found = text_value(name, value)
                return found.content if isinstance(found, EncodedImage) else {"string": value}
            case {"b64": _}:
                return cast(dict[str, Any], value)
            case {"shape": shape, "data": data, "indices": indices}:
                return [np.asarray(indices).T, np.asarray(data), np.asarray(shape)]
            case _:
                return np.asarray(value)
    except ValueError as error:
        raise InvalidValue(f"input {name!r}: the nested list is ragged: {error}") from error
