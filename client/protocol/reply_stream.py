"""Reply stream of a client: the commands that make and read the stream, and the meaning of the replies. No I/O.

                                ┌─ read, receive ─┐
                                ▼                 │
    UNSURE ──make, made──► SURE ──────────────────┘
       ▲                     │
       └─────────────────────┘  doubt; 10 s without a renewal; a renewal that finds no stream

A node publishes results only to an existing stream (NOMKSTREAM), so a client makes sure of the stream before it enqueues records.
Redis keeps the stream for a minute after the last sign of the client, or for longer while a call that may pause has results under
way (`outlive`). So a client that vanishes costs Redis its results under way, and of the results that it has read at most
`_UNTRIMMED_BYTES`, until then.
"""

import math
from collections.abc import Sequence
from typing import Any

from cluster_serving.client import keys
from cluster_serving.client.errors import ResultTimeout
from cluster_serving.client.protocol.admission import queue_full
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.resp import Command, cannot_serve, is_out_of_memory
from cluster_serving.client.wire.reply import Entry, Reply, is_known, read_replies, unknown_form
from cluster_serving.client.wire.result import Result

BLOCK_S = 1.0
"""Longest wait of one read. Redis does not tell a waiting client that the stream has been deleted."""

LIFE_S = 60.0  # time to live of a stream after the last sign of a client that does not pause
_LONGEST_PAUSE_S = 6 * 3600.0  # results of a client that was killed stay in Redis for as long
_SURE_S = LIFE_S / 6
_RENEWAL_S = _SURE_S / 2  # a client that reads all the time never has to make sure of the stream
_ENTRIES_AT_ONCE = 64
_COUNT = b"%d" % _ENTRIES_AT_ONCE
_UNTRIMMED_BYTES = 1 << 16


class ReplyStream:
    """One reply stream with one reader. Times are seconds of any one clock.

    Attributes:
        key: key of the stream.
        reply: field of a record that sends the record's result to the stream.
        vanished: True once the stream was found deleted, until `settle`.
        doubted: True once Redis may have lost records and results, until `settle`.
        answered: True once a result has come: a node of the job has been there.
        more: True if the last read may have left entries in the stream.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.reply: Fields = [keys.REPLY, key.encode()]
        self.vanished = self.doubted = self.answered = self.more = False
        self._life_s = self._renewed_life_s = LIFE_S
        self._last = b"0-0"
        self._renewed_s = -math.inf
        self._untrimmed_bytes = 0
        self._blocking = False  # True if the last read was allowed to wait
        self._idle = False  # True if the last read waited and found no entry
        self._unread = b""  # first field of the last entry, if the entry has an unknown form

    def is_unsure(self, now_s: float) -> bool:
        """Return whether the stream has to be made, or made sure of, before records are enqueued."""
        return now_s - self._renewed_s > _SURE_S or self._life_s > self._renewed_life_s

    @property
    def is_silent(self) -> bool:
        """True if the last read waited in vain, and no result has ever come, or records and results may be lost."""
        return self._idle and (self.doubted or not self.answered)

    def outlive(self, pause_s: float) -> None:
        """Let the stream outlive pauses of the client of up to `pause_s`, at most six hours, from the next renewal on."""
        self._life_s = max(self._life_s, LIFE_S + min(pause_s, _LONGEST_PAUSE_S))

    def doubt(self) -> None:
        """Note that Redis may have lost the stream and records, or the client results: the connection broke, or an interrupt came.

        The next read begins at the first entry, because the ids of a new master may be smaller than the ids of the old one. The
        results that are read again have no waiting call any more.
        """
        self.doubted = True
        self._renewed_s = -math.inf
        self._last = b"0-0"

    def settle(self) -> None:
        """Forget earlier losses and pauses: no result is waited for."""
        self.vanished = self.doubted = False
        self._life_s = LIFE_S

    def make(self) -> tuple[Command, ...]:
        """Return the commands that make the stream if it does not exist."""
        # The cheapest way to make an empty stream.
        return ("XGROUP", "CREATE", self.key, "client", "$", "MKSTREAM"), self._renewal()

    def made(self, replies: Sequence[Any], now_s: float) -> None:
        """Read the replies to `make`, whose commands were sent at `now_s`.

        Raises:
            QueueFull: Redis has no memory for the stream.
            RedisRefused: Redis cannot serve now, or the key holds another type.
        """
        for reply in replies:
            if isinstance(reply, RedisRefused) and not str(reply).startswith("BUSYGROUP"):
                if is_out_of_memory(reply):
                    raise queue_full(f"the reply stream {self.key}: {reply}") from reply
                raise _refusal(f"cannot make the reply stream {self.key}", reply)
        if not isinstance(replies[0], RedisRefused):
            self._last = b"0-0"  # ids of a new stream may be smaller, too
        self._renewed_s = now_s

    def read(self, now_s: float, block_s: float) -> tuple[Command, ...]:
        """Return the commands of the next read, which waits up to `block_s` for a result.

        When due, the commands also renew the stream's time to live, and delete the entries that have been read.
        """
        self._blocking = block_s > 0
        block = ("BLOCK", b"%d" % max(1, round(1000 * block_s))) if self._blocking else ()
        read = ("XREAD", "COUNT", _COUNT, *block, "STREAMS", self.key, self._last)
        # After an idle read too, so that a vanished stream is noticed.
        if self._idle or self._untrimmed_bytes >= _UNTRIMMED_BYTES or now_s - self._renewed_s >= _RENEWAL_S:
            self._untrimmed_bytes, self._renewed_s = 0, now_s
            return self._renewal(), ("XTRIM", self.key, "MINID", _next_id(self._last)), read
        return (read,)

    def receive(self, replies: Sequence[Any]) -> Sequence[Entry]:
        """Return the entries in the replies to `read`.

        Raises:
            RedisRefused: Redis cannot serve now, or the key holds another type.
        """
        for reply in replies:
            if isinstance(reply, RedisRefused):
                raise _refusal(f"the reply stream {self.key}", reply)
        if len(replies) > 1 and not replies[0]:
            # FLUSHALL, a failover, or a client that slept for longer than the stream lives. The results since the last read
            # are lost.
            self.vanished = True
            self.doubt()
        found = replies[-1]
        entries: Sequence[Entry] = found[0][1] if found else ()
        for entry_id, fields in entries:
            self._last = entry_id
            self._untrimmed_bytes += sum(map(len, fields))
            self._unread = b"" if is_known(fields) else fields[0]
        self.answered = self.answered or bool(entries)
        self._idle = self._blocking and not entries
        self.more = len(entries) == _ENTRIES_AT_ONCE
        return entries

    def results(self, replies: Sequence[Any]) -> list[Result]:
        """Return the results in the replies to `read`. Raises as `receive` does."""
        return list(map(Reply.result, read_replies(self.receive(replies))))

    def no_result(self, what: str, reason: str) -> ResultTimeout:
        """Return the error for a result that does not come. The stream may know the reason better."""
        why = reason
        if self._unread:
            why = unknown_form(self._unread)
        elif self.vanished:
            why = "the reply stream was deleted meanwhile"
        return ResultTimeout(f"no result {what}; {why}")

    def _renewal(self) -> Command:
        self._renewed_life_s = self._life_s
        return "PEXPIRE", self.key, round(1000 * self._life_s)


def _refusal(what: str, refusal: RedisRefused) -> RedisRefused:
    """Return a refusal that names the stream, or the bare refusal of a Redis that cannot serve now."""
    return refusal if cannot_serve(refusal) else RedisRefused(f"{what}: {refusal}")


def _next_id(entry_id: bytes) -> bytes:
    """Return the smallest id after `entry_id`."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return b"%b-%d" % (milliseconds, int(sequence) + 1)
