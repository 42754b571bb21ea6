"""Dead letters: records that no node could process, kept with the reason, and the stream that keeps them.

    1763657000000-0
        dead_letter   {"code":"InferenceFailed","message":"ValueError: ...","traceback":"Traceback ...",
                       "entry":"1763656999000-0","node":"host-1a2b3c","model":"sha256:...","died_ms":1763657000000,
                       "deliveries":1}
        uri           img-17                     from here on the record's own fields, as they came
        tensor:x      ...

`finish.lua` writes them, in the same step that answers the record; `maxDeadLetters` bounds them. What is here reads them, puts
them back (`replay.lua`) and deletes them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cluster_serving.client import keys
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.threads.link import Link

REPLAY = Script(Path(__file__).with_name("replay.lua").read_text())

# Letters in one reply of Redis: a record may have megabytes, so few; 10,000 of 1 KB take 0.3 s this way.
_PAGE = 16
_DELETED_AT_ONCE = 1000
_UNREADABLE = "Unreadable"


class Reason(msgspec.Struct, frozen=True):
    """Why a record died, and where."""

    code: str = _UNREADABLE
    """An `ErrorCode`, the same as in the record's answer."""
    message: str = ""
    """The sentence of the answer."""
    traceback: str = ""
    """Where it was raised; empty when nothing was, as when a worker was killed."""
    entry: str = ""
    """The record's id in the job's stream; begins with the Unix time in ms at which it was enqueued."""
    node: str = ""
    """The node that gave it up."""
    model: str = ""
    """What `fingerprint` says of the model that did not take it."""
    died_ms: int = 0
    """Unix time."""
    deliveries: int = 0
    """How often a node had read it."""


class DeadLetter(msgspec.Struct, frozen=True):
    """One dead letter: its `id` in the stream of dead letters, and the record's `fields` in their order, as they came."""

    id: str
    reason: Reason
    fields: list[tuple[bytes, bytes]]

    @property
    def uri(self) -> str:
        """The record's name; empty when it had none."""
        return next((value.decode(errors="replace") for field, value in self.fields if field == keys.URI), "")


def encode_reason(code: str, message: str, traceback: str, entry: str, node: str, model: str, died_ms: int) -> bytes:
    """The JSON object of the field `dead_letter`, without its end: `finish.lua` adds `,"deliveries":N}`."""
    texts = [text.encode(errors="replace").decode() for text in (code, message, traceback, entry, node, model)]
    names = ("code", "message", "traceback", "entry", "node", "model")
    document: dict[str, object] = dict(zip(names, texts, strict=True))
    return msgspec.json.encode(document | {"died_ms": died_ms})[:-1]


def decode_letter(letter_id: bytes, fields: list[bytes]) -> DeadLetter:
    """A dead letter from its entry, given as `field, value, field, value, ...`; a reason that cannot be read says so."""
    pairs = list(zip(fields[::2], fields[1::2], strict=True))
    died_ms = int(letter_id.partition(b"-")[0])
    if not pairs or pairs[0][0] != keys.DEAD_LETTER:
        reason = Reason(message="the letter does not begin with its reason", died_ms=died_ms)
        return DeadLetter(letter_id.decode(), reason, pairs)
    try:
        reason = msgspec.json.decode(pairs[0][1], type=Reason)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = Reason(message=f"the reason cannot be read: {error}", died_ms=died_ms)
    return DeadLetter(letter_id.decode(), reason, pairs[1:])


class DeadLetters:
    """The dead letters of one job.

    Args:
        link: to Redis.
        job: its name.

    Raises:
        ConnectionLost: from every method: Redis cannot be reached, or left.
        redis.ResponseError: the same: Redis refused the command.
    """

    def __init__(self, link: Link, job: str) -> None:
        self.job = job
        self._link = link
        self._key = keys.dead_key(job)

    def __len__(self) -> int:
        return int(self._link.call("XLEN", self._key))

    def get(self, letter_id: str) -> DeadLetter | None:
        """The letter of this id, if there is one."""
        found: list[Any] = self._link.call("XRANGE", self._key, letter_id, letter_id)
        return decode_letter(*found[0]) if found else None

    def newest_first(self) -> Iterator[DeadLetter]:
        """All letters, a few of them in memory at a time."""
        return self._pages("XREVRANGE", "+", "-")

    def oldest_first(self, before_ms: int | None = None) -> Iterator[DeadLetter]:
        """The letters that there are now, a few of them in memory at a time; those that come meanwhile are left out.

        Args:
            before_ms: only those that died before this Unix time.
        """
        newest: list[Any] = self._link.call("XREVRANGE", self._key, "+", "-", "COUNT", 1)
        if not newest:
            return iter(())
        return self._pages("XRANGE", "-", newest[0][0].decode() if before_ms is None else f"({max(before_ms, 1)}-0")

    def replay(self, letter_id: str, job: str) -> str | None:
        """Put a letter back into the stream of a job, whatever its limit, and delete it here, in one step.

        Its `reply` and `deadline` are left behind: the result goes to the result hash.

        Returns:
            The id of the new record; None when there is no such letter.
        """
        added: bytes | None = self._link.run(REPLAY, [self._key, job], [letter_id])
        return added.decode() if added else None

    def purge(self, ids: Sequence[str]) -> int:
        """Delete letters for ever; how many of them there were."""
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
