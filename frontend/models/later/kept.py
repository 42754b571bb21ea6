"""One call that is answered later, as a hash in Redis.

    id          `CallId`
    owner       digest of the caller's API key, or empty
    form        form of the answer, for the routes
    records     number of records
    left        number of records without a result (client/keys.py)
    expires     Unix time in ms until which the hash is kept
    entries     ids of the records in the job's stream, separated by spaces
    before      number of records that waited for a node when the call came
    read        number of records that nodes had read when the call came. Empty: Redis did not tell
    callback    URL for the result, if the caller gave one (client/keys.py)
    finished    number of times that the call has been finished: a replayed dead letter finishes its call again
    tried       number of failed attempts to post the result
    <uri>       result of a record, packed

`entries` is written last, after Redis has taken the records. Without it the frontend, or its Redis, ended in between.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote

from cluster_serving.client import keys
from cluster_serving.client.wire.result import Result, unpack_result

ID, OWNER, FORM, RECORDS, EXPIRES = b"id", b"owner", b"form", b"records", b"expires"
ENTRIES, BEFORE, READ, TRIED = b"entries", b"before", b"read", b"tried"

_NOT_YET = (1 << 64, 0)
_ID = re.compile(r"([0-9a-f]{32})-([^:]+)")


class CallId(NamedTuple):
    """Id of a call: `<secret>-<job>`, with 128 random bits.

    The names of keys in Redis, which `SCAN` shows, and records and dead letters have only a digest of the secret.
    """

    secret: str
    job: str

    @classmethod
    def new(cls, job: str) -> "CallId":
        """Return an id that nobody can guess."""
        return cls(secrets.token_hex(16), job)

    @classmethod
    def parse(cls, text: str) -> "CallId | None":
        """Return the id in a text. None: the text is no id."""
        found = _ID.fullmatch(text)
        return cls(found[1], found[2]) if found else None

    @property
    def digest(self) -> str:
        """Digest of the secret."""
        return sha256(self.secret.encode()).hexdigest()[:32]

    @property
    def key(self) -> str:
        """Key of the hash."""
        return keys.later_key(self.job, self.digest)

    @property
    def path(self) -> str:
        """Path at the frontend."""
        return f"/results/{quote(str(self), safe='')}"

    def uris(self, records: int) -> list[bytes]:
        """Return the uris of the call's records."""
        name = self.digest[:8]
        return [b"%b-%d" % (name.encode(), number) for number in range(records)]

    def __str__(self) -> str:
        return f"{self.secret}-{self.job}"


class Queue(NamedTuple):
    """The queue of a job at one moment.

    Attributes:
        waiting: number of records that no node has read.
        read: number of records that nodes have read since the stream was made. None: Redis before 7.0 does not tell.
        last: id of the last record that a node has read.
    """

    waiting: int
    read: int | None
    last: bytes

    @classmethod
    def of(cls, length: Any, groups: Any) -> "Queue":
        """Return the queue from the replies to `XLEN` and `XINFO GROUPS`. An error is the reply for a missing stream."""
        if isinstance(length, int) and isinstance(groups, list):
            for group in groups:
                facts = dict(zip(group[::2], group[1::2], strict=True))
                if facts[b"name"] == keys.GROUP.encode():
                    return cls(
                        max(0, length - facts[b"pending"]), facts.get(b"entries-read"), facts[b"last-delivered-id"]
                    )
        return cls(length if isinstance(length, int) else 0, None, b"0-0")


class Kept:
    """A call, and the queue of its job, as read at one moment.

    Args:
        call: id of the call.
        fields: fields of the hash.
        queue: the queue of the job.
    """

    def __init__(self, call: CallId, fields: Mapping[bytes, bytes], queue: Queue) -> None:
        self.call = call
        self.owner = fields[OWNER].decode()
        self.form = fields[FORM]
        self.records = int(fields[RECORDS])
        self.expires_s = int(fields[EXPIRES]) // 1000
        self.entries: Sequence[bytes] = fields.get(ENTRIES, b"").split()
        self._fields = fields
        self._queue = queue

    @classmethod
    def alone(cls, key: bytes, fields: Mapping[bytes, bytes]) -> "Kept | None":
        """Return a call that is done and has a callback, or None if there is no such call under the key."""
        call = CallId.parse(fields.get(ID, b"").decode(errors="replace"))
        if call is None or call.key.encode() != key or not {keys.CALLBACK, keys.FINISHED} <= fields.keys():
            return None
        return cls(call, fields, Queue(0, None, b"0-0"))

    @property
    def begun(self) -> tuple[int, int]:
        """Time of the first record on Redis' clock: ms, and a number within the ms. A call that is on its way is the newest."""
        return _number(self.entries[0]) if self.entries else _NOT_YET

    @property
    def callback(self) -> str:
        """URL for the result."""
        return self._fields[keys.CALLBACK].decode()

    @property
    def message(self) -> str:
        """Id of the message that posts the result. A call that was finished again has another message."""
        return f"{self.call.secret}-{self._fields[keys.FINISHED].decode()}"

    @property
    def tried(self) -> int:
        """Number of failed attempts to post the result."""
        return int(self._fields.get(TRIED, b"0"))

    @property
    def is_done(self) -> bool:
        """True once every record has a result."""
        return int(self._fields[keys.LEFT]) <= 0

    @property
    def place(self) -> int:
        """Place of the first record in the queue, from 1. 0: a node has read the record, or every record has a result.

        Redis before 7.0 tells no more than that the place is no further back than the end of the queue.
        """
        if self.is_done or (self.entries and _number(self.entries[0]) <= _number(self._queue.last)):
            return 0
        place, read = 1 + int(self._fields.get(BEFORE, b"0")), self._fields.get(READ)
        if read and self._queue.read is not None:
            place -= self._queue.read - int(read)
        return max(1, min(place, self._queue.waiting))

    @cached_property
    def state(self) -> str:
        """`waiting` for a node, `running`, or `done`."""
        return "done" if self.is_done else "waiting" if self.place else "running"

    def results(self) -> list[Result]:
        """Return the results of a call that is done."""
        return [unpack_result(uri.decode(), self._fields.get(uri, b"")) for uri in self.call.uris(self.records)]


def _number(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds), int(number)
