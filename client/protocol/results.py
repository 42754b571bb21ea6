"""Results for programs: the script that deletes results, and the conversion of results. No I/O, for threads and asyncio alike.

A result is read first, and then deleted: a connection that breaks in between loses nothing.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError, ErrorCode, RecordFailed, ResultTimeout, Unreadable
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.wire.original.result import decode_result as decode_original
from cluster_serving.client.wire.result import Result, decode_result

DELETE = Script(Path(__file__).with_name("delete.lua").read_text())
READ_AT_ONCE = 16
"""Results that `results` reads in one trip. Each one is deleted by itself, right before it is given."""

Found = tuple[bytes, list[bytes]]
"""Key and fields of a result hash."""

Answer = NDArray[Any] | Any
"""Answer to a record: the ndarray of one output, a list of several outputs, text, or the JSON value of a filter.

Most answers are an ndarray, so type checkers and editors offer the methods of an ndarray. `Any` stands for the rest.
"""

PAUSE_S = 600.0
"""Seconds for which Redis at least keeps the results under way of a caller of `predict_many` or `as_completed` that pauses."""

WINDOW = 1024
"""Default number of records that `predict_many` and `as_completed` keep under way."""


class Failed(str):
    """Return value of `query` and `dequeue` for a failed record: the text `NaN`, as in the original, with code and reason."""

    code: str
    reason: str

    def __new__(cls, code: str, reason: str) -> "Failed":
        """Return the text `NaN` with code and reason."""
        failed = super().__new__(cls, "NaN")
        failed.code = code
        failed.reason = reason
        return failed

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # of `str`: the text alone
        """Return the arguments for a copy, and for the reading of a pickle."""
        return self.code, self.reason


def escape_glob(text: str) -> str:
    """Return the glob pattern that matches exactly the text."""
    return re.sub(r"([*?\[\]\\^])", r"\\\1", text)


def result_of(fields: Sequence[bytes], uri: str) -> Result:
    """Return the result in the fields of a hash, in either dialect."""
    if keys.RECEIPT in fields:
        return decode_result(uri, fields)
    found = dict(zip(fields[::2], fields[1::2], strict=True))
    result = decode_result(uri, [keys.ERROR, found[keys.ERROR]]) if keys.ERROR in found else Result(uri, {})
    value = decode_original(found.get(keys.VALUE, b""))
    if result.error is None and isinstance(value, str) and value == "NaN":
        return Result(uri, {}, error=("Unknown", "the record failed; this server does not say why"))
    return result if result.error else Result(uri, {}, value)


def deletion(found: Sequence[Found]) -> tuple[list[bytes], list[bytes]]:
    """Return the keys and arguments of `DELETE` for results that were read."""
    receipts = [dict(zip(fields[::2], fields[1::2], strict=True)).get(keys.RECEIPT, b"") for _, fields in found]
    return [key for key, _ in found], receipts


def found_result(key: bytes, prefix: str, fields: Sequence[bytes]) -> Result:
    """Return the result in a hash of the queue.

    An unreadable result becomes a failed result, and does not stop the remaining results.
    """
    uri = key.decode(errors="replace")[len(prefix) :]
    try:
        return result_of(fields, uri)
    except CodecError as error:
        return Result(uri, {}, error=(ErrorCode.UNREADABLE, str(error)))


def plain(result: Result) -> Answer:
    """Return a result as programs get it: `Result.value`.

    Raises:
        RecordFailed: the record failed. `Unreadable` if the result cannot be read.
    """
    if result.error is not None:
        failure = Unreadable if result.error[0] == ErrorCode.UNREADABLE else RecordFailed
        raise failure(*result.error, result.uri)
    return result.value


def begun_in_time(result: Result) -> Result:
    """Return the result unchanged, unless the record's deadline passed first.

    Raises:
        ResultTimeout: the node did not begin the record before its deadline. The deadline was the timeout of the call.
    """
    if result.error is not None and result.error[0] == ErrorCode.DEADLINE_EXCEEDED:
        which = f"of {result.uri!r} " if result.uri else ""  # a lone call has no name that its caller knows
        raise ResultTimeout(f"no result {which}in time; the node says: {result.error[1]}")
    return result


def plain_or_error(result: Result) -> Answer | RecordFailed:
    """Return the result as `plain` does, or the `RecordFailed` itself for a failed record."""
    try:
        return plain(result)
    except RecordFailed as error:
        return error


def answer_to_request(result: Result, number: int) -> Answer | RecordFailed:
    """Return the result of a request of `predict_many`, or the `RecordFailed` itself. Errors name the request by its number.

    Raises:
        ResultTimeout: the node did not begin the record before its deadline.
    """
    result.uri = f"request {number}"  # the caller has never seen the generated name
    return plain_or_error(begun_in_time(result))


def plain_or_failed(result: Result) -> Answer | Failed:
    """Return the result as `plain` does, or `Failed` for a failed record, so that one failure does not hide the other results."""
    try:
        return plain(result)
    except RecordFailed as error:
        return Failed(error.code, error.reason)
