"""What gets records into a job's stream, and what the replies mean: without any input or output, for threads and asyncio alike.

    MULTI
    XADD <job> * <field> <value> ...    once for each record
    EVAL room.lua                       takes back those that there is no room for
    EXEC

Nobody sees what is taken back. A script that is given the records and adds as many as have room makes a string of Lua's own of
each argument: for 64 records of 128 floats it cost Redis half as much again, for one of 600 kB two and a half times.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from cluster_serving.client import keys
from cluster_serving.client.errors import InvalidValue, QueueFull, RedisRefused
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.resp import Argument, Packet, bulks, is_out_of_memory, pack

CHUNK = 64
"""Records that are enqueued in one transaction."""
CHUNK_BYTES = 2 << 20
"""What it holds at most, but for its last record: of 8 MB, each image of 600 kB took Redis twice as long as alone."""

_ROOM = "\n".join(
    line for line in Path(__file__).with_name("room.lua").read_text().splitlines() if not line.startswith("--")
)
_MULTI = b"*1\r\n$5\r\nMULTI"

# In the words that the original prints.
_FULL = "Redis queue is full, please wait for inference or delete the unprocessed records."
_REFUSED = "Please check if Redis version > 5, if yes, memory may be full, try dequeue or delete."


class Records(NamedTuple):
    """Records that are enqueued together: the fields of each, and those that all of them have besides."""

    own: Sequence[Fields]
    common: Fields


def deadline(life_s: float) -> Fields:
    """The field of a record that a node must begin in so many seconds; none where it has for ever."""
    return [] if life_s == math.inf else [keys.DEADLINE, b"+%d" % max(0, round(1000 * life_s))]


def transaction(job: str, *together: Records) -> Packet:
    """What enqueues these records, as far as there is room."""
    stream, count = job.encode(), 0
    parts = [_MULTI]
    for own, common in together:
        tail = b"".join(bulks(common))
        for fields in own:
            parts.append(_xadd(stream, len(fields) + len(common)))
            parts += bulks(fields)
            parts.append(tail)
        count += len(own)
    parts.append(_end(job, count))
    return Packet(parts, count + 3)


@lru_cache(maxsize=256)
def _xadd(stream: bytes, values: int) -> bytes:
    """The beginning of a command that adds an entry of so many names and values."""
    return b"\r\n*%d" % (3 + values) + b"".join(bulks((b"XADD", stream, b"*")))


@lru_cache(maxsize=256)
def _end(job: str, count: int) -> bytes:
    """The end of a transaction that has added so many records."""
    return b"\r\n" + pack(_room(job, count, 0)) + pack((b"EXEC",))


def question(job: str, count: int) -> Sequence[Argument]:
    """The command that asks how many of so many records there is no room for."""
    return _room(job, 0, count)


def _room(job: str, added: int, planned: int) -> tuple[Argument, ...]:
    return ("EVAL", _ROOM, 3, job, keys.limits_key(job), keys.full_key(job), added, planned)


def admitted(job: str, replies: Sequence[Any]) -> tuple[list[bytes], QueueFull | None]:
    """What a transaction has done.

    Args:
        job: its name.
        replies: what EXEC gave.

    Returns:
        The ids of the entries, and why there are fewer than records, if so.

    Raises:
        RedisRefused: not for want of room.
    """
    for reply in replies:
        if isinstance(reply, RedisRefused):
            raise reply
    *ids, answer = replies
    surplus, full = answered(job, answer)
    return cast(list[bytes], ids[: len(ids) - surplus]), full


def answered(job: str, answer: Any) -> tuple[int, QueueFull | None]:
    """What the reply to a `question` says: how many records there is no room for, and why, if there are any."""
    surplus, why = answer
    if not surplus:
        return 0, None
    return surplus, queue_full(
        why.decode(errors="replace") if why else f"the stream {job} holds maxQueueLength records"
    )


def refused(job: str, refusal: RedisRefused) -> QueueFull:
    """The error for records that Redis has not taken, as it has no memory for them.

    Raises:
        RedisRefused: it is something else.
    """
    if is_out_of_memory(refusal):
        return queue_full(f"the stream {job}: {refusal} {_REFUSED}")
    raise RedisRefused(f"cannot enqueue to the job {job}: {refusal}") from refusal


def queue_full(why: str) -> QueueFull:
    """The error for records that are not admitted."""
    return QueueFull(f"{_FULL} ({why})")


_MOST_FIELDS = 3500  # Redis' Lua takes 8000 values at once, and writes dead letters


def chunks(records: Iterable[Fields]) -> Iterator[list[Fields]]:
    """The records, as many at a time as are enqueued together."""
    chunk: list[Fields] = []
    size = 0
    for fields in records:
        chunk.append(fields)
        size += sum(map(len, fields))
        if len(chunk) == CHUNK or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def check(fields: Fields) -> None:
    """Refuse a record that could not become a dead letter.

    Raises:
        InvalidValue: it has too many fields.
    """
    if len(fields) > 2 * _MOST_FIELDS:
        raise InvalidValue(f"a record has at most {_MOST_FIELDS} fields, this one has {len(fields) // 2}")
