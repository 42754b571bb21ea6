"""Calls of one Redis that are answered later: accepted, read, listed, given up."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from cluster_serving.client import keys
from cluster_serving.client.errors import ClusterServingError, ConnectionLost
from cluster_serving.client.protocol.admission import queue_full
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.resp import is_out_of_memory
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.http.errors import TooManyCalls
from cluster_serving.frontend.models.calls import CANCEL, Calls
from cluster_serving.frontend.models.later import kept
from cluster_serving.frontend.models.later.kept import CallId, Kept, Queue
from cluster_serving.frontend.models.later.together import Together
from cluster_serving.frontend.models.later.watch import Watch
from cluster_serving.frontend.models.visit import Visit

_MOST_LISTED = 1000


class Later:
    """Calls of one Redis that are answered later. The connection is not that of predictions, which must not wait for it.

    Args:
        settings: settings of the Redis.
        config: settings of the frontend.

    Attributes:
        watch: waits of this process for results.

    Raises:
        ConnectionLost: in every method: Redis cannot be reached, or went away.
        RedisRefused: in every method: Redis answered with an error.
    """

    def __init__(self, settings: RedisSettings, config: FrontendConfig) -> None:
        self._link = Together(settings)
        self._config = config
        self.watch = Watch(self._link)

    async def accept(
        self,
        calls: Calls,
        job: str,
        records: Sequence[Fields],
        form: bytes,
        owner: str,
        visit: Visit,
    ) -> CallId:
        """Keep a call, and enqueue its records. Their results go into the hash of the call, also if this process dies.

        Args:
            calls: calls to the job.
            job: name of the job.
            records: input fields of each record.
            form: form of the answer.
            owner: digest of the caller's API key, or empty.
            visit: the request: the time that it may take, its callback and its trace.

        Raises:
            TooManyCalls: the owner has `laterPerKey` calls.
            QueueFull: the queue has no room, or Redis no memory.
            ConnectionLost: Redis does not keep the call.
        """
        call, now_ms = CallId.new(job), round(1000 * time.time())
        life_ms = round(1000 * (visit.timeout_s + self._config.later_ttl_s))
        longest_ms = round(1000 * (self._config.later_timeout_s + self._config.later_ttl_s))
        expires_ms = now_ms + life_ms
        facts: dict[bytes, bytes | str | int] = {
            kept.ID: str(call),
            kept.OWNER: owner,
            kept.FORM: form,
            kept.RECORDS: len(records),
            kept.EXPIRES: expires_ms,
            keys.LEFT: len(records),
            **({keys.CALLBACK: visit.callback} if visit.callback else {}),
        }
        owned = keys.calls_key(owner)
        *replies, length, groups = await self._link.call(
            ("ZREMRANGEBYSCORE", owned, "-inf", f"({now_ms}"),
            ("ZADD", owned, expires_ms, str(call)),
            ("PEXPIREAT", owned, now_ms + longest_ms),
            ("HSET", call.key, *(part for fact in facts.items() for part in fact)),
            ("PEXPIRE", call.key, life_ms),
            ("ZCARD", owned),
            ("XLEN", job),
            ("XINFO", "GROUPS", job),
        )
        try:
            for reply in replies:
                if isinstance(reply, RedisRefused) and is_out_of_memory(reply):
                    raise queue_full(f"a call that is answered later: {reply}")
            await self._link.check(replies)
            if replies[-1] > self._config.later_per_key:
                raise TooManyCalls(
                    f"{self._config.later_per_key} calls are kept to be answered later, the most for one caller (laterPerKey): "
                    "DELETE results that are not needed any more",
                )
            entries = await calls.enqueue(
                call.uris(len(records)), records, call.key, visit.timeout_s, visit.traceparent
            )
        except ClusterServingError:
            with suppress(ClusterServingError):  # otherwise the hash expires
                await self._forget(call, owner)
            raise
        queue = Queue.of(length, groups)
        read = b"" if queue.read is None else b"%d" % queue.read
        is_kept = True
        with suppress(ConnectionLost):  # Redis has the records, and their place alone is not known
            is_kept, *_ = await self._link.call_checked(
                ("HGET", call.key, kept.FORM),
                ("HSET", call.key, kept.ENTRIES, b" ".join(entries), kept.BEFORE, queue.waiting, kept.READ, read),
            )
        if not is_kept:
            await self._forget(call, owner)
            raise ConnectionLost("Redis has lost the call after a failover: send it again")
        return call

    async def read(self, call: CallId) -> Kept | None:
        """Return a call, or None if this Redis does not keep the call."""
        replies = await self._link.call(("HGETALL", call.key), ("XLEN", call.job), ("XINFO", "GROUPS", call.job))
        await self._link.check(replies[:1])
        fields = dict(zip(replies[0][::2], replies[0][1::2], strict=True))
        return Kept(call, fields, Queue.of(*replies[1:])) if kept.FORM in fields else None

    async def give_up(self, found: Kept) -> int:
        """Forget a call. Return the number of its records that no node has begun, and none will begin."""
        cancelled = 0
        if found.entries and not found.is_done:
            (number,) = await self._link.call_checked(
                ("EVAL", CANCEL.text, 1, found.call.job, keys.GROUP, *found.entries)
            )
            cancelled = int(number)
        await self._forget(found.call, found.owner)
        return cancelled

    async def of(self, owner: str) -> list[Kept]:
        """Return the calls of an owner that are kept longest, without results."""
        (ids,) = await self._link.call_checked(("ZREVRANGE", keys.calls_key(owner), 0, _MOST_LISTED - 1))
        calls = [call for text in ids if (call := CallId.parse(text.decode()))]
        if not calls:
            return []
        jobs = sorted({call.job for call in calls})
        asked = [command for job in jobs for command in (("XLEN", job), ("XINFO", "GROUPS", job))]
        facts = kept.OWNER, kept.FORM, kept.RECORDS, kept.EXPIRES, kept.ENTRIES, kept.BEFORE, kept.READ, keys.LEFT
        replies: list[Any] = await self._link.call(*asked, *(("HMGET", call.key, *facts) for call in calls))
        queues = {job: Queue.of(*replies[2 * at : 2 * at + 2]) for at, job in enumerate(jobs)}
        found: list[Kept] = []
        for call, values in zip(calls, replies[len(asked) :], strict=True):
            if isinstance(values, list) and values[0] is not None:
                fields = {name: value for name, value in zip(facts, values, strict=True) if value is not None}
                found.append(Kept(call, fields, queues[call.job]))
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self.watch.close()
        await self._link.close()

    async def _forget(self, call: CallId, owner: str) -> None:
        await self._link.call_checked(("DEL", call.key), ("ZREM", keys.calls_key(owner), str(call)))
