"""Dead letters: a stream of records that no node could process, each with the reason.

    1763657000000-0
        dead_letter   {"code":"InferenceFailed","message":"ValueError: ...","traceback":"Traceback ...",
                       "entry":"1763656999000-0","node":"host-1a2b3c","model":"sha256:...","died_ms":1763657000000,
                       "deliveries":1}
        uri           img-17                     from here on the record's own fields, unchanged
        tensor:x      ...

    1763657000001-0
        dead_letter       {"code":"InferenceFailed", ...}
        dead_letter_cut   10000128               bytes of the whole record: from here on its first bytes
        uri               img-18
        tensor:x          ...

A dead letter is written beside the record's result, which is an error. The result goes to the client. The letter is for
operators, who look at the record, and put the record back when the cause is mended. `DEADLY` in outcome.py has the errors of dead
letters. Only a record whose result Redis refuses, whatever the result is, has a letter in place of the result: `UNPUBLISHED`.

The writer makes the reason, and `finish.lua` writes the letter in the same step as the result. `maxDeadLetters` bounds the
number of letters, and `maxDeadLetterBytes` the memory. The oldest letters also give way while Redis is short of memory
(supervisor/heartbeat.py). `DeadLetters` reads letters, puts letters back into a job's stream (`replay.lua`) and deletes letters.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cluster_serving.client import keys
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.threads.link import Link

REPLAY = Script(Path(__file__).with_name("replay.lua").read_text())

# Letters in one reply of Redis. Few, because a record may have megabytes. 10,000 letters of 1 KB take 0.3 s in pages of 16.
_PAGE = 16
_DELETED_AT_ONCE = 1000
_DIGITS = 18
_UNREADABLE = "Unreadable"
UNPUBLISHED = "Unpublished"
CUT = b"dead_letter_cut"


class Reason(msgspec.Struct, frozen=True):
    """Cause and place of a record's death."""

    code: str = _UNREADABLE
    """An `ErrorCode`, the same as in the record's answer, or `UNPUBLISHED`."""
    message: str = ""
    """Error message of the answer."""
    traceback: str = ""
    """Traceback of the exception. Empty without an exception, for example after a worker was killed."""
    entry: str = ""
    """The record's id in the job's stream. The id begins with the Unix time in ms at which the record was enqueued."""
    node: str = ""
    """Node that gave the record up."""
    model: str = ""
    """Result of `fingerprint` for the model that could not process the record."""
    died_ms: int = 0
    """Unix time in ms at which the record died."""
    deliveries: int = 0
    """Number of times that Redis had given the record to a node, as far as the node of the letter knows."""

    def encode(self) -> bytes:
        """Return the JSON object of the field `dead_letter`."""
        return msgspec.json.encode(self)


class DeadLetter(msgspec.Struct, frozen=True):
    """Dead letter: its `id` in the stream of dead letters, the reason, and the record's `fields`, unchanged and in order.

    Of a large record, which had `cut_bytes`, only the first bytes are left. 0: the record is whole.
    """

    id: str
    reason: Reason
    fields: list[tuple[bytes, bytes]]
    cut_bytes: int = 0

    @property
    def uri(self) -> str:
        """Name of the record, empty when the record had none."""
        return next((value.decode(errors="replace") for field, value in self.fields if field == keys.URI), "")


def decode_letter(letter_id: bytes, fields: list[bytes]) -> DeadLetter:
    """Return a dead letter from its entry, given as `field, value, field, value, ...`.

    For an unreadable reason, the message of the returned reason says that the reason cannot be read.
    """
    pairs = list(zip(fields[::2], fields[1::2], strict=True))
    died_ms = int(letter_id.partition(b"-")[0])
    if not pairs or pairs[0][0] != keys.DEAD_LETTER:
        reason = Reason(message="the letter does not begin with its reason", died_ms=died_ms)
        return DeadLetter(letter_id.decode(), reason, pairs)
    try:
        reason = msgspec.json.decode(pairs[0][1], type=Reason)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = Reason(message=f"the reason cannot be read: {error}", died_ms=died_ms)
    if len(pairs) > 1 and pairs[1][0] == CUT and pairs[1][1].isdigit():
        return DeadLetter(letter_id.decode(), reason, pairs[2:], int(pairs[1][1][:_DIGITS]))
    return DeadLetter(letter_id.decode(), reason, pairs[1:])


class DeadLetters:
    """The dead letters of one job.

    Args:
        link: connection to Redis.
        job: name of the job.

    Raises:
        ConnectionLost: in every method: Redis cannot be reached, or the connection was lost.
        redis.ResponseError: in every method: Redis refused the command.
    """

    def __init__(self, link: Link, job: str) -> None:
        self.job = job
        self._link = link
        self._key = keys.dead_key(job)

    def __len__(self) -> int:
        return int(self._link.call("XLEN", self._key))

    def get(self, letter_id: str) -> DeadLetter | None:
        """Return the letter with an id, or None."""
        found: list[Any] = self._link.call("XRANGE", self._key, letter_id, letter_id)
        return decode_letter(*found[0]) if found else None

    def newest_first(self) -> Iterator[DeadLetter]:
        """Iterate over all letters, with a few letters in memory at a time."""
        return self._pages("XREVRANGE", "+", "-")

    def oldest_first(self, before_ms: int | None = None) -> Iterator[DeadLetter]:
        """Iterate over the present letters, with a few letters in memory at a time. Letters that come meanwhile are left out.

        Args:
            before_ms: leave out records that died at or after this Unix time in ms.
        """
        newest: list[Any] = self._link.call("XREVRANGE", self._key, "+", "-", "COUNT", 1)
        if not newest:
            return iter(())
        return self._pages("XRANGE", "-", newest[0][0].decode() if before_ms is None else f"({max(before_ms, 1)}-0")

    def replay(self, letter_id: str, job: str) -> str | None:
        """Put a letter back into the stream of a job and delete the letter, in one step. The limit of the stream is ignored.

        The fields `reply` and `deadline` are left out, so the result goes to the result hash.

        Returns:
            Id of the new record, or None when the letter does not exist.
        """
        added: bytes | None = self._link.run(REPLAY, [self._key, job], [letter_id])
        return added.decode() if added else None

    def purge(self, ids: Sequence[str]) -> int:
        """Delete letters for ever, and return how many of the letters existed."""
        starts = range(0, len(ids), _DELETED_AT_ONCE)
        return sum(self._link.call("XDEL", self._key, *ids[start : start + _DELETED_AT_ONCE]) for start in starts)

    def _pages(self, command: str, start: str, end: str) -> Iterator[DeadLetter]:
        while True:
            page: list[Any] = self._link.call(command, self._key, start, end, "COUNT", _PAGE)
            for letter_id, fields in page:
                yield decode_letter(letter_id, fields)
            if len(page) < _PAGE:
                return
            start = f"({page[-1][0].decode()}"
