"""Admission of records into a job's stream: the commands, and the meaning of the replies. No I/O, for threads and asyncio alike.

    MULTI
    XADD <job> * <field> <value> ...    once for each record
    EVAL room.lua                       takes back the records without room
    EXEC
    WAIT <copies> <ms>                  if the records must be durable (durability.py)

No reader ever sees a record that is taken back. The alternative is a script with the records as arguments that adds as many as
have room. Lua copies each argument into a string of its own: for 64 records of 128 floats the script cost Redis 1.5 times as
much, for one record of 600 kB 2.5 times as much.

A caller makes a `Send` of the records, asks the `Admission` for the `next` commands, and hands over the replies (`receive`) or the
error (`fail`), until the send is no longer held:

    HELD ──next──► SENT ──all have room────────────────► TAKEN
     ▲ │            │ ├───the connection broke──────────► LOST       Redis may have taken the records: never sent again
     │ │            │ └───Redis refused for good────────► REFUSED
     │ │            │                                      ▲
     │ └──pause_s: too late, or no use, to try again───────┘
     └──────────────┘
       no room for all, no memory, Redis cannot be reached or cannot serve
"""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from enum import Enum, auto
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost, InvalidValue, QueueFull, Unavailable
from cluster_serving.client.protocol.durability import WAIT_MS, Copies, not_copied
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.resp import Packet, bulks, cannot_serve, is_out_of_memory, pack
from cluster_serving.client.protocol.retrying import Attempts, restated

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


def question(job: str, count: int) -> Packet:
    """Return the command that asks how many of `count` records have no room."""
    return Packet([pack(_room(job, 0, count))], 1)


def _room(job: str, added: int, planned: int) -> tuple[str | int, ...]:
    return ("EVAL", _ROOM, 3, job, keys.limits_key(job), keys.full_key(job), added, planned)


def admitted(job: str, replies: Sequence[Any]) -> tuple[list[bytes], QueueFull | None]:
    """Read the replies to a transaction: the ids of the entries, and the error if there are fewer entries than records.

    Raises:
        RedisRefused: Redis refused for another reason than lack of room, and took no record.
    """
    results = replies[-1]
    if isinstance(results, RedisRefused):  # of EXEC, because Redis refused the command that the first refusal names
        raise next(reply for reply in replies if isinstance(reply, RedisRefused))
    for result in results:
        if isinstance(result, RedisRefused):
            raise result
    *ids, answer = results
    surplus, full = answered(job, answer)
    return ids[: len(ids) - surplus], full


def answered(job: str, answer: Any) -> tuple[int, QueueFull | None]:
    """Read the reply to a `question`: the number of records without room, and the error for them, if any.

    Raises:
        RedisRefused: Redis refused the question.
    """
    if isinstance(answer, RedisRefused):
        raise answer
    surplus, why = answer
    if not surplus:
        return 0, None
    return surplus, queue_full(
        why.decode(errors="replace") if why else f"the stream {job} holds maxQueueLength records"
    )


def queue_full(why: str) -> QueueFull:
    """Return the error for records that are not admitted."""
    return QueueFull(f"{_FULL} ({why})")


_MOST_FIELDS = 3500  # a Lua script writes the dead letters, and Redis' Lua takes 8000 values at once
_MOST_BYTES = 512 << 20  # Redis closes the connection at a longer value (proto-max-bulk-len)


def chunks(records: Iterable[Fields]) -> Iterator[list[Fields]]:
    """Split records into chunks for one transaction each.

    Raises:
        InvalidValue: as `check` does. The chunks before the record have been yielded.
    """
    chunk: list[Fields] = []
    size = 0
    for fields in records:
        length = sum(map(len, fields))
        if length > _MOST_BYTES or len(fields) > 2 * _MOST_FIELDS:
            check(fields)
        chunk.append(fields)
        size += length
        if len(chunk) == CHUNK or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def check(fields: Fields) -> None:
    """Check that Redis can take a record, and that the record can become a dead letter.

    Raises:
        InvalidValue: the record has too many fields, or a field is too long.
    """
    if len(fields) > 2 * _MOST_FIELDS:
        raise InvalidValue(f"a record has at most {_MOST_FIELDS} fields, this one has {len(fields) // 2}")
    if max(map(len, fields)) > _MOST_BYTES:
        name, size = next((name, len(value)) for name, value in pairwise(fields) if len(value) > _MOST_BYTES)
        shown = name[:99].decode(errors="replace")
        raise InvalidValue(f"{shown!r} has {size:,} bytes, and Redis takes {_MOST_BYTES:,}")


class State(Enum):
    """State of a send, as drawn above."""

    HELD = auto()
    SENT = auto()
    TAKEN = auto()
    REFUSED = auto()
    LOST = auto()


HELD, SENT, TAKEN, REFUSED, LOST = State  # Python 3.11 takes 0.1 microseconds for State.HELD


class Send:
    """Records of one call on their way into a job's stream. Times are seconds of any one clock.

    Args:
        records: fields of each record.
        until_s: time by which a node must begin the records.
        common: fields that all records share.
        before: number of records of the same call that Redis has taken earlier.
        begun_s: begin of the call, if the call has made attempts before its patience is asked for.
        durable: the caller is told once Redis has as many copies as the admission wants.

    Attributes:
        left: records that Redis has not taken.
        ids: ids of the entries of the taken records, in order.
        copies: number of replicas that WAIT in the transaction of a sent send waits for, 0 without WAIT.
        error: reason that a held send was not taken yet, or error of a refused or lost send.
    """

    __slots__ = (
        "_attempts",
        "_before",
        "begun_s",
        "common",
        "copies",
        "durable",
        "error",
        "ids",
        "left",
        "state",
        "until_s",
    )

    def __init__(
        self,
        records: Sequence[Fields],
        until_s: float = math.inf,
        common: Sequence[bytes] = (),
        before: int = 0,
        begun_s: float = math.inf,
        *,
        durable: bool = False,
    ) -> None:
        self.durable = durable
        self.left = records
        self.until_s = until_s
        self.begun_s = begun_s
        self.common = common
        self.ids: list[bytes] = []
        self.copies = 0
        self.state = HELD if records else TAKEN
        self.error: Exception | None = None
        self._before = before
        self._attempts: Attempts | None = None  # since Redis last took records

    def fail(self, error: QueueFull | ConnectionLost) -> None:
        """Note the error of an exchange with Redis: of the commands of `Admission.next`, or of earlier commands.

        The records of a held send were not in the exchange, so a connection that broke becomes `Unavailable`.
        """
        if isinstance(error, QueueFull) or error.unsent:
            self.state, self.error = HELD, error
        elif self.state is HELD:
            self.error = restated(error, Unavailable)
        else:
            self._end(LOST, error)

    def pause_s(self, now_s: float, give_up_s: float) -> float:
        """Return the seconds to wait before the next attempt of a held send. Without a next attempt the send is refused."""
        if self.state is HELD and isinstance(self.error, QueueFull | ConnectionLost):
            self._attempts = self._attempts or Attempts()
            try:
                return self._attempts.pause_s(self.error, now_s, give_up_s)
            except (QueueFull, ConnectionLost) as error:
                self._end(REFUSED, error)
        return 0

    def take(self, ids: Sequence[bytes], full: QueueFull | None) -> None:
        """Note that Redis took the first records. `full` is the reason, if Redis left records out."""
        if ids:
            self.ids += ids
            self.left = self.left[len(ids) :]
            self._attempts = None  # room becomes free, so the next pause is short
        self.state, self.error = (HELD, full) if self.left else (TAKEN, None)

    def refuse(self, refusal: RedisRefused) -> None:
        """Note that Redis will not take the records."""
        self.state, self.error = REFUSED, refusal

    def _end(self, state: State, error: QueueFull | ConnectionLost) -> None:
        own = copy(error)  # the sends of a transaction share their error
        own.accepted = self._before + len(self.ids)
        self.state, self.error = state, own


_NO_LIMIT = sys.maxsize


class Admission:
    """Admission into one job's stream: one or more sends in one transaction.

    Threads with a connection each may share an admission: all that belongs to one transaction is kept with its sends.

    Args:
        job: name of the job.
        copies: number of replicas that must have the records of durable sends. None: none.

    Attributes:
        job: name of the job.
        room: number of records that may be sent, 0 after an attempt that did not find room for all. The next attempt then asks
            Redis for room before it sends records.
    """

    def __init__(self, job: str, copies: Copies | None = None) -> None:
        self.job = job
        self.room = _NO_LIMIT
        self._copies = copies

    def next(self, sends: Sequence[Send], now_s: float) -> Packet:
        """Return the next commands for held sends: their records in one transaction, or the question for room."""
        room = self.room
        if not room:
            return question(self.job, sum(len(send.left) for send in sends))
        copies = 0 if self._copies is None or not any(send.durable for send in sends) else self._copies()
        together: list[Records] = []
        for send in sends:
            together.append(Records(send.left[:room], [*send.common, *deadline(send.until_s - now_s)]))
            send.state, send.copies = State.SENT, copies
            room -= len(together[-1].own)
            if not room:
                break
        packet = transaction(self.job, *together)
        if not copies:
            return packet
        return Packet([*packet.parts, pack(("WAIT", copies, WAIT_MS))], packet.replies + 1)

    def receive(self, sends: Sequence[Send], replies: Sequence[Any]) -> None:
        """Read the replies to the commands that `next` returned for the same sends.

        Raises:
            RedisRefused: Redis cannot serve now. The sends are held.
        """
        ids: list[bytes] = []
        full: QueueFull | None = None
        asked = sends[0].state is HELD
        lost: ConnectionLost | None = None
        wanted = 0 if asked else sends[0].copies
        if wanted:
            *replies, copies = replies
            if isinstance(copies, RedisRefused) or copies < wanted:
                why = str(copies) if isinstance(copies, RedisRefused) else f"{copies} in {WAIT_MS / 1000:g} s"
                lost = not_copied(wanted, why)
        try:
            if asked:
                surplus, full = answered(self.job, replies[0])
                self.room = sum(len(send.left) for send in sends) - surplus
                full = None if self.room else full
            else:
                ids, full = admitted(self.job, replies)
        except RedisRefused as refusal:
            if cannot_serve(refusal):
                for send in sends:
                    send.take([], None)
                raise
            if not is_out_of_memory(refusal):
                final = RedisRefused(f"cannot enqueue to the job {self.job}: {refusal}")
                final.__cause__ = refusal
                for send in sends:
                    send.refuse(final)
                return
            full = queue_full(f"the stream {self.job}: {refusal} {_REFUSED}")
            self.room = 0
        last = 0
        for send in sends:
            first, last = last, last + len(send.left)
            if lost is not None and send.durable and ids[first:last]:
                send.fail(lost)
            else:
                send.take(ids[first:last], full)
        if not asked:
            self.room = _NO_LIMIT if last == len(ids) else 0
