r"""Conversion of `/predict` replies to arrays, for HTTP frontends of every version.

An element of `predictions` has one of the forms

    {value=[[903,0.13]]}  {value=data=[0.1,0.2],shape=[2];}          0.9: no JSON
    {"value":"[[903,0.13]]"}  {"value":"{\"data\":[..],\"shape\":[..]}"}  0.10 and later, and ours. Several outputs follow each
                                                                     other. The data may be text. A sequence or map has
                                                                     data alone. Any other JSON is a value of `postprocess`
    "/////7AAAA..."                                                  0.11, direct mode: a result's value, quoted
"""

import json
import math
import re
from contextlib import suppress
from typing import Any, Protocol, cast

import numpy as np

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.nested import is_nested
from cluster_serving.client.wire.original.result import decode_result, restore_shape
from cluster_serving.client.wire.tensors import as_numbers

_FAILED = "NaN"
_JAVA_MAP_START = "{value="
# What `server_timing` of the frontend writes.
_TIMING = re.compile(r"(?:^|,)\s*(queue|wait|run|total);dur=(\d+(?:\.\d+)?)")
_EXAMPLE = """{
  "instances": [
    {
      "image": "<base64 of a JPEG or PNG file>",
      "scalar": 12345,
      "tensor": [[1.0, 2.0], [3.0, 4.0]],
      "strings": ["hello", "world"],
      "sparse": {"shape": [100, 10000], "data": [0.2, 0.5], "indices": [[0, 1], [3, 4]]}
    }
  ]
}"""


class HttpResponse(Protocol):
    """Needed part of a response of requests or httpx."""

    @property
    def status_code(self) -> int:
        """HTTP status of the reply."""
        ...

    @property
    def text(self) -> str:
        """Body of the reply."""
        ...


def parse_prediction(text: str, dtype: type[np.floating[Any]] = np.float32) -> Any:
    """Return the value of one element of `predictions`, in any of the three forms.

    Args:
        text: the element.
        dtype: dtype of the numbers that are neither whole numbers nor bools.

    Returns:
        The same as `decode_result`. Text is a str or nested lists of str. An output that is a sequence or map has lists of numbers
        instead of arrays. The JSON value of a user's `postprocess` is returned unchanged, apart from NaN, which is the text `NaN`
        of a failed record.

    Raises:
        CodecError: the element begins like one of the forms, but is malformed.
    """
    return _prediction(text, np.dtype(dtype))


def server_timing_ms(header: str) -> dict[str, float]:
    """Return the milliseconds of each stage in the header `Server-Timing`, with the rest of the frontend's time as `frontend`.

    Proxies add entries of their own behind those of the frontend. The result is empty for a header without any stage.
    """
    stages: dict[str, float] = {}
    for stage, took_ms in _TIMING.findall(header):
        stages.setdefault(stage, float(took_ms))
    if not stages:
        return {}
    total_ms = stages.pop("total", 0.0)
    # A stage ends on another clock, with whole milliseconds at its begin, so that the sum may be larger than the total.
    return {**stages, "frontend": max(0.0, total_ms - sum(stages.values()))}


def http_json_to_ndarray(json_str: str) -> Any:
    """Return the first prediction in the body of a reply, as `parse_prediction` does, but arrays written as text in float64.

    Raises:
        CodecError: the body is not a reply with predictions.
    """
    document = _json(json_str)
    predictions: Any = document.get("predictions") if isinstance(document, dict) else None
    if not isinstance(predictions, list) or not predictions or not isinstance(predictions[0], str):
        raise CodecError("the reply has no list of texts named 'predictions'")
    return _prediction(predictions[0], np.dtype(np.float64))


def http_response_to_ndarray(response: HttpResponse) -> Any:
    """Return the first prediction in a reply. For any status but 200, print the reason and return the text `[]`.

    Raises:
        CodecError: the status is 200 and the body is not a reply with predictions.
    """
    if response.status_code == 200:
        return http_json_to_ndarray(response.text)
    if response.status_code == 400:
        print("Invalid input format, valid example:")
        print(_EXAMPLE)
    else:
        print(f"Error when calling Cluster Serving Http server, error code: {response.status_code}")
    print("WARNING: Server returns invalid response, so you will get []")
    return "[]"


def _prediction(text: str, dtype: np.dtype[Any]) -> Any:
    text = text.strip()
    if text.startswith(_JAVA_MAP_START):
        return _value(text.removeprefix(_JAVA_MAP_START).removesuffix("}"), dtype)
    if text.startswith("{"):
        value = _json(text).get("value")
        if not isinstance(value, str):
            raise CodecError("the prediction is a JSON object without the text 'value'")
        if value != _FAILED and not value.startswith("{"):
            with suppress(ValueError, RecursionError):
                return json.loads(value)
        return _value(value, dtype)
    if text.startswith('"'):
        return decode_result(cast("str", _json(text)))
    return decode_result(text)


def _value(text: str, dtype: np.dtype[Any]) -> Any:
    outputs: list[Any] = []
    if text.startswith("data="):
        for part in filter(None, text.split(";")):
            data, _, shape = part.removeprefix("data=").partition(",shape=")
            outputs.append(_output(_json(data), _json(shape), dtype))
    elif text.startswith("{"):
        documents = _documents(text)
        if len(documents) == 1 and not _is_output(documents[0]):
            return documents[0]
        outputs += (_output_of(document, dtype) for document in documents)
    else:
        return decode_result(text)
    return outputs[0] if len(outputs) == 1 else outputs


def _documents(text: str) -> list[dict[str, Any]]:
    """Return JSON objects that follow each other without a separator."""
    decoder, at = json.JSONDecoder(), 0
    documents: list[dict[str, Any]] = []
    while at < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise CodecError(f"the prediction is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise CodecError("the prediction's value is not a series of JSON objects")
        documents.append(cast("dict[str, Any]", document))
    return documents


def _is_output(document: dict[str, Any]) -> bool:
    """Return whether a JSON object is an output, and not a value of the user's `postprocess`."""
    match document:
        case {"data": list(), "shape": list(), **others}:
            return not others
        case {"data": data, **others}:
            return is_nested(data) and not others
        case _:
            return False


def _output_of(document: dict[str, Any], dtype: np.dtype[Any]) -> Any:
    """Return an output: an array, text, or the lists and dicts of a sequence or map, which has no shape."""
    if "shape" not in document and _is_output(document):
        return document["data"]
    return _output(document.get("data"), document.get("shape"), dtype)


def _output(data: Any, shape: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array, or nested lists of text."""
    if not isinstance(data, list) or not isinstance(shape, list):
        raise CodecError("the prediction has no lists 'data' and 'shape'")
    if {*map(type, shape)} - {int}:
        raise CodecError(f"the prediction's shape {shape} is not of integers")
    if {*map(type, data)} == {str}:
        return restore_shape(np.array(data, object), shape).tolist()
    try:
        values = as_numbers(data)
        if values.dtype.kind not in "iub":
            with np.errstate(over="ignore"):  # a number too large for float32 becomes infinity
                values = np.array(data, dtype) if values.dtype.kind == "O" else values.astype(dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise CodecError(f"the prediction's data are not numbers: {error}") from error
    if not values.size and math.prod(shape) == 0:
        try:
            return values.reshape(shape)
        except (ValueError, OverflowError) as error:
            raise CodecError(f"the prediction has no elements and shape {shape}: {error}") from error
    return restore_shape(values.ravel(), shape)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"the reply is not JSON: {error}") from error
