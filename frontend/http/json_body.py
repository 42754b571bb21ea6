"""JSON of bodies. A few megabytes do not become gigabytes of objects, and every value from a user can be written."""

import json
import math
from typing import Any

import numpy as np
import orjson

from cluster_serving.frontend.http.errors import BadRequest

MAX_PARTS = 1 << 22
"""Largest number of lists, objects and texts in one body: `[],` is three bytes of text and 64 bytes of memory."""


def parse(body: bytes) -> Any:
    """Return the document of a body.

    Raises:
        BadRequest: the body is not JSON, or has too many lists, objects and texts.
    """
    check_parts(body)
    try:
        return orjson.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}" if body else "the body is empty, and not JSON") from error


def check_parts(text: bytes) -> None:
    """Check, before JSON is parsed, that its objects do not take many times its size in memory.

    Raises:
        BadRequest: the text has too many lists, objects and texts.
    """
    if len(text) > MAX_PARTS:
        found = text.count(b"[") + text.count(b"{") + text.count(b'"') // 2
        if found > MAX_PARTS:
            raise BadRequest(f"the body has {found} lists, objects and texts; at most {MAX_PARTS} are read")


def refuse_callback(value: Any) -> None:
    """Refuse a callback in a body, beside the inputs of the model. None: there is no callback.

    Raises:
        BadRequest: there is a callback. The message tells its place.
    """
    if value is not None:
        raise BadRequest(
            "callback is not read from the body: give it as the header Callback, or as ?callback= in the URL"
        )


def write(document: Any) -> bytes:
    """Return the JSON of a document. Numpy arrays become lists, NaN and the infinities become null."""
    try:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # whole numbers beyond 64 bits from a user's `postprocess`, or text that UTF-8 has no bytes for
        return json.dumps(_plain(document), allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return dict(zip(value, map(_plain, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
