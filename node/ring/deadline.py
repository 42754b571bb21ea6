"""Deadlines: the time until which a record must be begun, and the error of a record that is late.

Deadlines are on Redis' clock, like the ids of entries.
"""

from collections.abc import Sequence

from cluster_serving.client.errors import CodecError, ErrorCode

_DIGITS = 17
_LATEST_MS = 10**_DIGITS  # with a time to live of `_DIGITS` digits, the sum fits into the row table


def deadline_ms(entry_id: bytes, field: bytes) -> int:
    """Return the deadline of a record as Unix time in ms.

    The field holds the deadline itself, or `+` and the milliseconds from the creation of the entry to the deadline.

    Raises:
        CodecError: the field has neither form.
    """
    digits = field.removeprefix(b"+")
    if not digits.isdigit() or len(digits) > _DIGITS:
        raise CodecError(
            f"the record's deadline is {field[:40]!r}, not a whole number of milliseconds: Unix time, or + and a time to live"
        )
    return int(digits) if digits == field else _made_ms(entry_id) + int(digits)


def deadlines_ms(ids: Sequence[bytes], fields: Sequence[bytes]) -> list[int]:
    """Return the deadlines of several records, read as by `deadline_ms`.

    Raises:
        CodecError: a field has neither form.
    """
    first = fields[0]
    if first.startswith(b"+") and fields.count(first) == len(fields):
        life = deadline_ms(b"0", first)  # read once, as of an entry created at 0
        return [_made_ms(entry_id) + life for entry_id in ids]
    return list(map(deadline_ms, ids, fields))


def life_ms(entry_id: bytes, deadline_ms: int) -> int:
    """Return the milliseconds from the enqueueing of a record to its deadline."""
    return deadline_ms - _made_ms(entry_id)


def _made_ms(entry_id: bytes) -> int:
    made_ms = int(entry_id.partition(b"-")[0])
    # Once any client has given an entry a far id, the ids of all later entries are as far (restart_ids.lua).
    return made_ms if made_ms < _LATEST_MS else _LATEST_MS


def late(by_ms: float, what: str) -> tuple[str, str]:
    """Return the error of a record whose deadline passed `by_ms` before the event `what`."""
    return ErrorCode.DEADLINE_EXCEEDED, f"the deadline had passed {by_ms:.0f} ms before {what}"


def too_late(left_ms: float, needed_ms: float, what: str) -> tuple[str, str]:
    """Return the error of a record whose deadline passed before the event `what`, or is nearer than the answer."""
    if left_ms < 0:
        return late(-left_ms, what)
    message = f"the deadline is {left_ms:.0f} ms away, and at this load an answer takes about {needed_ms:.0f} ms"
    return ErrorCode.DEADLINE_EXCEEDED, message
