"""Until when a record is to be begun, and what it is told when that has passed. By Redis' clock, as the ids of entries have it."""

from collections.abc import Sequence

from cluster_serving.client.errors import CodecError, ErrorCode

_DIGITS = 17  # more do not fit into the row table


def deadline_ms(entry_id: bytes, field: bytes) -> int:
    """The deadline of a record, Unix time: its field says it, or `+` and how long after its entry was made.

    Raises:
        CodecError: the field says neither.
    """
    digits = field.removeprefix(b"+")
    if not digits.isdigit() or len(digits) > _DIGITS:
        raise CodecError(
            f"the record's deadline is {field[:40]!r}, not a whole number of milliseconds, of Unix time or behind a +"
        )
    return int(digits) if digits == field else _bounded(_made_ms(entry_id) + int(digits))


def deadlines_ms(ids: Sequence[bytes], fields: Sequence[bytes]) -> list[int]:
    """The same of several records.

    Raises:
        CodecError: a field says neither.
    """
    first = fields[0]
    if first.startswith(b"+") and fields.count(first) == len(fields):
        life = deadline_ms(b"0", first)
        found = [_made_ms(entry_id) + life for entry_id in ids]
        _bounded(max(found))
        return found
    return list(map(deadline_ms, ids, fields))


def life_ms(entry_id: bytes, deadline_ms: int) -> int:
    """How long a record had to live when it was enqueued."""
    return deadline_ms - _made_ms(entry_id)


def _bounded(time_ms: int) -> int:
    if time_ms >= 10**_DIGITS:
        raise CodecError(f"the record's deadline is {time_ms} in ms of Unix time, which is no time")
    return time_ms


def _made_ms(entry_id: bytes) -> int:
    return int(entry_id.partition(b"-")[0])


def late(by_ms: float, what: str) -> tuple[str, str]:
    """The error of a record whose deadline had passed, so many ms before something could happen."""
    return ErrorCode.DEADLINE_EXCEEDED, f"the deadline had passed {by_ms:.0f} ms before {what}"


def too_late(left_ms: float, needed_ms: float, what: str) -> tuple[str, str]:
    """The error of a record whose deadline has passed before something could happen, or is nearer than its answer."""
    if left_ms < 0:
        return late(-left_ms, what)
    message = f"the deadline is {left_ms:.0f} ms away, and at this load an answer takes about {needed_ms:.0f} ms"
    return ErrorCode.DEADLINE_EXCEEDED, message
