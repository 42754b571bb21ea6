"""Step 3 of publishing a slot: the address of each result.

    record with the field `reply`       the reply stream of that name, where all results of a call for one client are one entry,
                                        or the hash of a call that is answered later
    record without the field `reply`    a result hash, which Redis keeps for the time to live of results. Its key is that of the job
                                        and the uri, or for a client before 0.9 `result:<uri>`

The addressed results of a slot, and the dead letters among its records, are published by one call of `finish.lua`. A record
whose result Redis refuses becomes a dead letter without a result.
"""

from pathlib import Path
from typing import NamedTuple

from cluster_serving.client import keys
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.wire.dead_letter import Reason
from cluster_serving.node.ring.metrics import Count
from cluster_serving.node.ring.slot import LEGACY, Row

FINISH = Script(Path(__file__).with_name("finish.lua").read_text())

_LEGACY_PREFIX = keys.LEGACY_RESULTS.encode()

Counts = tuple[Count, ...]
"""Counters that a record raises by 1."""


class JobAddress(NamedTuple):
    """Keys of a job, and the limits of what Redis keeps for the job.

    Attributes:
        stream: key of the job's stream.
        dead_letters: key of the stream of dead letters.
        result_prefix: key of a result hash without the uri.
        result_ttl_ms: milliseconds for which Redis keeps a result hash, 0 for ever.
        max_dead_letters: number of dead letters to keep.
        max_dead_letter_bytes: bytes of memory that dead letters may take.
    """

    stream: bytes
    dead_letters: bytes
    result_prefix: bytes
    result_ttl_ms: bytes
    max_dead_letters: bytes
    max_dead_letter_bytes: bytes

    @classmethod
    def of(cls, job: str, result_ttl_ms: int, max_dead_letters: int, max_dead_letter_bytes: int) -> "JobAddress":
        """Return the address of a job by its name."""
        return cls(
            job.encode(),
            keys.dead_key(job).encode(),
            keys.result_prefix(job).encode(),
            b"%d" % result_ttl_ms,
            b"%d" % max_dead_letters,
            b"%d" % max_dead_letter_bytes,
        )


class FinishCall:
    """Keys and arguments of one call of `finish.lua`.

    Args:
        job: address of the job.
        batch: JSON of the part of the receipt that is equal for all records of the call.

    Attributes:
        counts: counters of each row, in the order of the rows.
        dead: records that become dead letters, each with the reason.
        size: bytes of all fields.
    """

    def __init__(self, job: JobAddress, batch: bytes) -> None:
        self.counts: list[Counts] = []
        self.dead: list[tuple[Row, Reason]] = []
        self.size = 0
        self._job = job
        self._batch = batch
        self._replies: dict[bytes, bytes] = {}  # key in `reply`: number of the key in the script, negative for a call
        self._hashes: list[bytes] = []
        self._letters: list[bytes] = []
        self._rows: list[bytes] = []

    def add(self, row: Row, fields: list[bytes], counts: Counts, reason: Reason | None = None) -> None:
        """Add a record with its result.

        Args:
            row: the record.
            fields: fields of an `Answer`.
            counts: counters of the record.
            reason: reason of the dead letter if the record becomes one.
        """
        if row.reply:
            number = self._replies.get(row.reply)
            if number is None:
                sign = -1 if keys.is_later(row.reply) else 1
                number = self._replies[row.reply] = b"%d" % (sign * (len(self._replies) + 1))
            self._rows += (row.id, number, *fields)
        else:
            prefix = _LEGACY_PREFIX if row.flags & LEGACY else self._job.result_prefix
            self._hashes.append(prefix + row.uri)
            self._rows += (row.id, b"0", b"%d" % len(fields), *fields)
        self.counts.append(counts)
        self.size += sum(map(len, fields))
        if reason is not None:
            self._letter(row, reason)

    def bury(self, row: Row, counts: Counts, reason: Reason) -> None:
        """Add a record that becomes a dead letter without a result."""
        self._rows += (row.id, b"0", b"0")
        self.counts.append(counts)
        self._letter(row, reason)

    def keys(self) -> list[bytes]:
        """Return `KEYS` of the script."""
        return [self._job.stream, self._job.dead_letters, *self._replies, *self._hashes]

    def arguments(self) -> list[bytes]:
        """Return `ARGV` of the script."""
        job, replies, letters = self._job, b"%d" % len(self._replies), b"%d" % (len(self._letters) // 2)
        settings = keys.GROUP.encode(), job.result_ttl_ms, job.max_dead_letters, job.max_dead_letter_bytes
        return [*settings, self._batch, replies, letters, *self._letters, *self._rows]

    def _letter(self, row: Row, reason: Reason) -> None:
        self.dead.append((row, reason))
        self._letters += b"%d" % len(self.counts), reason.encode()
