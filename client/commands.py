"""The commands that the queues send and what the replies mean, without any input or output: for threads and asyncio alike."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import (
    CodecError,
    ErrorCode,
    InvalidValue,
    RecordFailed,
    ResultTimeout,
)
from cluster_serving.client.link import Script
from cluster_serving.client.wire.original.encode import encode_record as encode_original
from cluster_serving.client.wire.original.result import decode_result as decode_original
from cluster_serving.client.wire.original.values import EncodedImage, text_value
from cluster_serving.client.wire.reply import Reply
from cluster_serving.client.wire.result import Result, decode_result
from cluster_serving.client.wire.values import encode_record, encode_uri

Dialect = Literal["native", "original"]
Fields = list[bytes]

TAKE = Script(Path(__file__).with_name("take.lua").read_text())
REPLY_LIFE_MS = 60_000
"""A reply stream lives so long after its client was last seen."""

REPLIES_AT_ONCE = 64
"""Entries of a reply stream that one read takes at most."""
WINDOW = 1024
"""Records that `predict_many` and `as_completed` keep under way."""


class Failed(str):
    """What `query` and `dequeue` give for a record that failed: the text `NaN`, as the original does, and the reason."""

    code: str
    reason: str

    def __new__(cls, code: str, reason: str) -> "Failed":
        """The text `NaN` with its reason."""
        failed = super().__new__(cls, "NaN")
        failed.code = code
        failed.reason = reason
        return failed


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


def escape_glob(text: str) -> str:
    """The pattern that matches this text and nothing else."""
    return re.sub(r"([*?\[\]\\^])", r"\\\1", text)


def result_of(fields: Sequence[bytes], uri: str) -> Result:
    """The result in the fields of a hash, whichever dialect it is in."""
    if keys.RECEIPT in fields:
        return decode_result(uri, fields)
    found = dict(zip(fields[::2], fields[1::2], strict=True))
    result = decode_result(uri, [keys.ERROR, found[keys.ERROR]]) if keys.ERROR in found else Result(uri, {})
    value = decode_original(found.get(keys.VALUE, b""))
    if result.error is None and isinstance(value, str) and value == "NaN":
        return Result(uri, {}, error=("Unknown", "the record failed; this server does not say why"))
    return result if result.error else Result(uri, {}, value)


def taken_result(key: bytes, prefix: str, fields: Sequence[bytes]) -> Result:
    """The result in a hash that has been taken off; one that cannot be read is a failed one, and the others go on."""
    uri = key.decode(errors="replace")[len(prefix) :]
    try:
        return result_of(fields, uri)
    except CodecError as error:
        return Result(uri, {}, error=("Unreadable", str(error)))


def result_in(reply: Reply) -> Result:
    """The result in a reply; one that cannot be read is a failed one, and the others go on."""
    uri = reply.uri.decode(errors="replace")
    try:
        return decode_result(uri, *reply.unpack())
    except CodecError as error:
        return Result(uri, {}, error=("Unreadable", str(error)))


def plain(result: Result) -> Any:
    """What a program gets for a result: the ndarray (or text) of one output, a list of several, or the value.

    Raises:
        RecordFailed: the record failed.
    """
    if result.error is not None:
        raise RecordFailed(*result.error, result.uri)
    if result.value is not None or not result.outputs:
        return result.value
    outputs = list(result.outputs.values())
    return outputs[0] if len(outputs) == 1 else outputs


def no_result(what: str, *, stream_vanished: bool) -> ResultTimeout:
    """The error for a result that did not come in time, and what may be the reason."""
    why = "the reply stream was deleted meanwhile" if stream_vanished else "is a node of this job running?"
    return ResultTimeout(f"no result {what}; {why}")


def begun_in_time(result: Result) -> Result:
    """The same result.

    Raises:
        ResultTimeout: the node let the record's deadline pass, which was the timeout of the call.
    """
    if result.error is not None and result.error[0] == ErrorCode.DEADLINE_EXCEEDED:
        raise ResultTimeout(f"no result of {result.uri!r} in time; the node says: {result.error[1]}")
    return result


def plain_or_error(result: Result) -> Any:
    """The same, and for a record that failed the `RecordFailed` itself."""
    try:
        return plain(result)
    except RecordFailed as error:
        return error


def plain_or_failed(result: Result) -> Any:
    """The same, and `Failed` for a record that failed: one of them must not keep the others from their reader."""
    try:
        return plain(result)
    except RecordFailed as error:
        return Failed(error.code, error.reason)


def next_id(entry_id: bytes) -> bytes:
    """The smallest id behind this one."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return b"%b-%d" % (milliseconds, int(sequence) + 1)
