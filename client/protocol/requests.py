"""Fields of a request, in the dialect that the program has chosen: native or the original's."""

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import InvalidValue
from cluster_serving.client.wire.current_trace import current_traceparent
from cluster_serving.client.wire.original.encode import encode_record as encode_original
from cluster_serving.client.wire.original.values import EncodedImage, text_value
from cluster_serving.client.wire.tensors import as_numbers
from cluster_serving.client.wire.values import Value, begins_with_text, encode_record, encode_uri

Dialect = Literal["native", "original"]
Fields = list[bytes]
Request = Mapping[str, Value] | Value
"""Argument of `predict`: a dict of inputs, one value (the input `t`), or JSON text with `instances`."""


def request_fields(dialect: Dialect, uri: str, data: Mapping[str, Any]) -> Fields:
    """Return the fields of one request.

    Raises:
        InvalidValue: the uri or a value cannot be sent.
    """
    if dialect == "native":
        return native_fields(uri, data)
    return [keys.URI, encode_uri(uri), keys.DATA, encode_original(data).encode()]


def native_fields(uri: str, data: Mapping[str, Any]) -> Fields:
    """Return the fields of one request in the native dialect, with the trace of the caller if the caller is traced.

    Raises:
        InvalidValue: the uri or a value cannot be sent.
    """
    fields = encode_record(uri, data)
    if traceparent := current_traceparent():
        fields += keys.TRACEPARENT, traceparent.encode()
    return fields


def check_dialect(dialect: str) -> Dialect:
    """Return the dialect with the given name.

    Raises:
        InvalidValue: the name is neither `native` nor `original`.
    """
    match dialect:
        case "native" | "original":
            return dialect
        case _:
            raise InvalidValue(f"dialect is 'native' or 'original', not {dialect!r}")


def as_inputs(request: Any) -> Mapping[str, Any]:
    """Return the inputs in the argument of `predict`: a dict, JSON text with `instances`, or the value of the single input `t`.

    Raises:
        InvalidValue: the JSON text is malformed, or has no instance or an invalid value.
    """
    if isinstance(request, dict):
        return cast(dict[str, Any], request)
    if isinstance(request, str):
        try:
            document = json.loads(request)
        except (ValueError, RecursionError) as error:
            if request.lstrip().startswith("{"):
                raise InvalidValue(f"the request is not JSON: {error}") from None
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
    """Convert a value of the frontend's JSON. Base64 text of an image becomes an image. Sparse indices are (nnz, rank)."""
    try:
        match value:
            case str():
                found = text_value(name, value)
                return found.content if isinstance(found, EncodedImage) else {"string": value}
            case {"b64": _}:
                return cast(dict[str, Any], value)
            case {"shape": shape, "data": data, "indices": indices}:
                return [np.asarray(indices).T, as_numbers(data), np.asarray(shape)]
            case _ if begins_with_text(value):
                return value
            case _:
                array = as_numbers(value)
                return value if array.dtype.kind == "U" else array
    except ValueError as error:
        raise InvalidValue(f"input {name!r}: the nested list is ragged: {error}") from error
