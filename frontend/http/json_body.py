"""JSON of bodies: read without letting a few megabytes become gigabytes of objects, and written whatever a user puts there."""

import json
import math
from typing import Any

import numpy as np
import orjson

from cluster_serving.frontend.errors import BadRequest

MAX_PARTS = 1 << 22
"""Lists, objects and texts in one body, at most: `[],` is three bytes of text and 64 of memory."""


def parse(body: bytes) -> Any:
    """The document of a body.

    Raises:
        BadRequest: it is not JSON, or of too many lists, objects and texts.
    """
    check_parts(body)
    try:
        return orjson.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}" if body else "the body is empty, and not JSON") from error


def check_parts(text: bytes) -> None:
    """Check that JSON does not become many times as large in memory; called before it is read.

    Raises:
        BadRequest: it is of too many lists, objects and texts.
    """
    if len(text) > MAX_PARTS:
        found = text.count(b"[") + text.count(b"{") + text.count(b'"') // 2
        if found > MAX_PARTS:
            raise BadRequest(f"the body has {found} lists, objects and texts; at most {MAX_PARTS} are read")


def write(document: Any) -> bytes:
    """The JSON of a document; numpy arrays in it are lists, NaN and the infinities null."""
    try:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # whole numbers beyond 64 bits, from a user's `postprocess`; text that UTF-8 has no bytes for
        return json.dumps(_plain(document), allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return dict(zip(value, map(_plain, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
