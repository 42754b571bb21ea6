"""Dead letters of a job: read, put back into the job's stream, and deleted. Their form is in client/wire/dead_letter.py.

A dead letter is written beside the record's result, which is an error. The result goes to the client. The letter is for
operators, who look at the record, and put the record back when the cause is mended. `DEADLY` in outcome.py has the errors of dead
letters. Only a record whose result Redis refuses, whatever the result is, has a letter in place of the result: `UNPUBLISHED`.

The writer makes the reason, and `finish.lua` writes the letter in the same step as the result. `maxDeadLetters` bounds the
number of letters, and `maxDeadLetterBytes` the memory. The oldest letters also give way while Redis is short of memory
(supervisor/heartbeat.py).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from cluster_serving.client import keys
from cluster_serving.client.protocol.replay import REPLAY
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.dead_letter import DeadLetter, decode_letter

# Letters in one reply of Redis. Few, because a record may have megabytes. 10,000 letters of 1 KB take 0.3 s in pages of 16.
_PAGE = 16
_DELETED_AT_ONCE = 1000


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
            Id of the new record, or None when the letter does not exist, or only the first bytes of its record are kept.
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
