"""Admission of records into a job's stream: the commands, and the meaning of the replies. No I/O, for threads and asyncio alike.

    MULTI
    XADD <job> * <field> <value> ...    once for each record
    EVAL room.lua                       takes back the records without room
    EXEC

No reader ever sees a record that is taken back. The alternative is a script with the records as arguments that adds as many as
have room. Lua copies each argument into a string of its own: for 64 records of 128 floats the script cost Redis 1.5 times as
much, for one record of 600 kB 2.5 times as much.
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
"""Records per transaction."""
CHUNK_BYTES = 2 << 20
"""Most bytes per transaction, not counting the last record. With 8 MB, each image of 600 kB took Redis twice as long as alone."""

_ROOM = "\n".join(
    line for line in Path(__file__).with_name("room.lua").read_text().splitlines() if not line.startswith("--")
)
_MULTI = b"*1\r\n$5\r\nMULTI"

# Texts of the original.
_FULL = "Redis queue is full, please wait for inference or delete the unprocessed records."
_REFUSED = "Please check if Redis version > 5, if yes, memory may be full, try dequeue or delete."


class Records(NamedTuple):
    """Records that are enqueued together: the fields of each record, and the fields that all records share."""

    own: Sequence[Fields]
    common: Fields


def deadline(life_s: float) -> Fields:
    """Return the deadline field of a record that a node must begin within `life_s`, or no field for an infinite `life_s`."""
    return [] if life_s == math.inf else [keys.DEADLINE, b"+%d" % max(0, round(1000 * life_s))]


def transaction(job: str, *together: Records) -> Packet:
    """Return the transaction that enqueues as many of the records as have room."""
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
    """Return the beginning of an XADD command for an entry with `values` names and values."""
    return b"\r\n*%d" % (3 + values) + b"".join(bulks((b"XADD", stream, b"*")))


@lru_cache(maxsize=256)
def _end(job: str, count: int) -> bytes:
    """Return the end of a transaction that adds `count` records."""
    return b"\r\n" + pack(_room(job, count, 0)) + pack((b"EXEC",))


def question(job: str, count: int) -> Sequence[Argument]:
    """Return the command that asks how many of `count` records have no room."""
    return _room(job, 0, count)


def _room(job: str, added: int, planned: int) -> tuple[Argument, ...]:
    return ("EVAL", _ROOM, 3, job, keys.limits_key(job), keys.full_key(job), added, planned)


def admitted(job: str, replies: Sequence[Any]) -> tuple[list[bytes], QueueFull | None]:
    """Read the outcome of a transaction.

    Args:
        job: name of the job.
        replies: result of EXEC.

    Returns:
        The ids of the entries, and the error if there are fewer entries than records.

    Raises:
        RedisRefused: Redis refused for another reason than lack of room.
    """
    for reply in replies:
        if isinstance(reply, RedisRefused):
            raise reply
    *ids, answer = replies
    surplus, full = answered(job, answer)
    return cast(list[bytes], ids[: len(ids) - surplus]), full


def answered(job: str, answer: Any) -> tuple[int, QueueFull | None]:
    """Read the reply to a `question`: the number of records without room, and the error for them, if any."""
    surplus, why = answer
    if not surplus:
        return 0, None
    return surplus, queue_full(
        why.decode(errors="replace") if why else f"the stream {job} holds maxQueueLength records"
    )


def refused(job: str, refusal: RedisRefused) -> QueueFull:
    """Return the error for records that Redis refused for lack of memory.

    Raises:
        RedisRefused: Redis refused for another reason.
    """
    if is_out_of_memory(refusal):
        return queue_full(f"the stream {job}: {refusal} {_REFUSED}")
    raise RedisRefused(f"cannot enqueue to the job {job}: {refusal}") from refusal


def queue_full(why: str) -> QueueFull:
    """Return the error for records that are not admitted."""
    return QueueFull(f"{_FULL} ({why})")


_MOST_FIELDS = 3500  # a Lua script writes the dead letters, and Redis' Lua takes 8000 values at once


def chunks(records: Iterable[Fields]) -> Iterator[list[Fields]]:
    """Split records into chunks for one transaction each."""
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
    """Check that a record can become a dead letter.

    Raises:
        InvalidValue: the record has too many fields.
    """
    if len(fields) > 2 * _MOST_FIELDS:
        raise InvalidValue(f"a record has at most {_MOST_FIELDS} fields, this one has {len(fields) // 2}")
