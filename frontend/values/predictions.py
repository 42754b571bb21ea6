r"""Results as the answer of `/predict`. Each element of `predictions` has the form of version 0.10 of the original: a text of JSON.

    {"value":"{\"data\":[0.1,0.2],\"shape\":[2]}"}      one output. Several outputs follow each other, without separator
    {"value":"[[903,0.13]]"}                              result of topN, pickTopN or the user's `postprocess`
    {"value":"NaN"}                                       the record failed

Failed instances stand beside the predictions: `"errors": [{"index": 1, "code": "...", "message": "..."}]`.
The data are flat, in C order. NaN and the infinities are written for Python's json to read: NaN, Infinity, -Infinity.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import orjson
from sanic import HTTPResponse

from cluster_serving.client.wire.nested import is_nested
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.tensors import Array
from cluster_serving.frontend.http.errors import STATUS_OF_RECORD
from cluster_serving.frontend.http.json_body import write
from cluster_serving.frontend.http.responses import json_response

_FAILED = '{"value":"NaN"}'
_NOT_FINITE = {"nan": b"NaN", "inf": b"Infinity", "-inf": b"-Infinity"}


class Predictions(msgspec.Struct, frozen=True, tag="original"):
    """Form of the answer of `/predict`."""

    def response(self, results: Sequence[Result], _accepted: str) -> HTTPResponse:
        """Return 200 and the predictions, or the status of the first error if all instances failed."""
        errors: list[dict[str, Any]] = [
            {"index": index, "code": result.error[0], "message": result.error[1]}
            for index, result in enumerate(results)
            if result.error is not None
        ]
        if len(errors) == len(results):
            first = errors[0]
            status = STATUS_OF_RECORD.get(first["code"], 500)
            message = f"instances[{first['index']}]: {first['message']}"
            return json_response({"error": wrong(message) if status == 400 else message, "errors": errors}, status)
        document: dict[str, Any] = {"predictions": [prediction_text(result) for result in results]}
        if errors:
            document["errors"] = errors
        return json_response(document)


def wrong(details: str) -> str:
    """Return the original's error for a body that does not fit the model."""
    return f"Wrong content format.\nDetails: {details}"


def prediction_text(result: Result) -> str:
    """Return the text of one result."""
    if result.error is not None:
        return _FAILED
    if not result.outputs:
        return orjson.dumps({"value": json.dumps(result.value, separators=(",", ":"))}).decode()
    return f'{{"value":"{"".join(map(_output, result.outputs.values()))}"}}'


def _output(value: Any) -> str:
    """Return `{"data":[..],"shape":[..]}` for use within a text: quotes are escaped."""
    if not isinstance(value, np.ndarray):
        if is_nested(value):
            return json.dumps(write({"data": value}).decode())[1:-1]
        # Text, or nested lists of text, is written as ASCII, because UTF-8 has no bytes for some texts.
        texts = np.array(value, object)
        document = {"data": texts.reshape(-1).tolist(), "shape": list(texts.shape)}
        return json.dumps(json.dumps(document, separators=(",", ":")))[1:-1]
    flat: Array = value if value.ndim == 1 else value.reshape(-1)
    # orjson writes each number in the shortest form that is read as the same value of its dtype.
    numbers = orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" in numbers:
        each = numbers[1:-1].split(b",")
        for at in np.flatnonzero(~np.isfinite(flat)).tolist():
            each[at] = _NOT_FINITE[str(float(flat[at]))]
        numbers = b"[%b]" % b",".join(each)
    shape = ",".join(map(str, value.shape))
    return f'{{\\"data\\":{numbers.decode()},\\"shape\\":[{shape}]}}'
