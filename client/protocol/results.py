"""The commands that the queues send and what the replies mean, without any input or output: for threads and asyncio alike."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError, ErrorCode, RecordFailed, ResultTimeout
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.wire.original.result import decode_result as decode_original
from cluster_serving.client.wire.reply import Reply
from cluster_serving.client.wire.result import Result, decode_result

TAKE = Script(Path(__file__).with_name("take.lua").read_text())

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
