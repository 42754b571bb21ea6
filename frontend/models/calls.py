"""Records into the queue of one job, and their results back. Records of concurrent requests leave together.

One reply stream serves all calls of this process to the job, and one blocking read waits for all results. The key of the stream
begins as all reply streams of the job do, so that no node of a different job, and no user of one, may write to the stream.
"""

import asyncio
import secrets
import uuid
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from cluster_serving.client import keys
from cluster_serving.client.aio.admission import AsyncAdmission, fail
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.aio.packing import AsyncPacking
from cluster_serving.client.aio.replies import AsyncReplies
from cluster_serving.client.aio.tasks import cancel
from cluster_serving.client.errors import ClusterServingError, ErrorCode, ResultTimeout
from cluster_serving.client.protocol.durability import Copies
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.compression import Codec
from cluster_serving.client.wire.result import Result
from cluster_serving.frontend.metrics.timers import Timer, WorkerTimers

_LARGE_BYTES = 1 << 20  # packed in another thread: it takes a millisecond
CANCEL = Script(Path(__file__).with_name("cancel.lua").read_text())


class Calls:
    """Calls of one process of a frontend to one job.

    Args:
        settings: settings of the Redis, for the connection that reads results.
        sending: connection that sends records. The connection may have other users.
        job: name of the job.
        timers: timers of this process.
        window_s: seconds that a call waits for more calls, so that their records leave together.
        window_calls: number of calls that end the wait early.
        copies: number of replicas that must have records whose results go elsewhere. None: none. These records leave on a
            connection of their own, because Redis answers nothing on it while it waits for a replica.
        codec: codec for tensors that shrink. None: tensors are sent as they are.
    """

    def __init__(
        self,
        settings: RedisSettings,
        sending: AsyncLink,
        job: str,
        timers: WorkerTimers,
        window_s: float = 0,
        window_calls: int = 1,
        copies: Copies | None = None,
        codec: Codec | None = None,
    ) -> None:
        self._timers = timers
        self._sending = sending
        self._job = job
        key = keys.reply_key(job, uuid.uuid4().hex[:12])
        self._replies = AsyncReplies(settings, key, sending, partial(timers.observe, Timer.REDIS_GET))
        # No key has this secret in its name, which SCAN would show: a forger of answers has to guess 64 bits.
        self._uris = secrets.token_hex(8)
        self._numbers = count()
        self._admission = AsyncAdmission(sending, job, 0, window_s, window_calls)
        self._packing = AsyncPacking(sending, job, codec) if codec else None
        self._timeout_s = settings.timeout_s
        self._copying = AsyncLink(settings) if copies else None
        self._durable = AsyncAdmission(self._copying, job, 0, copies=copies) if self._copying else self._admission
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, records: Sequence[Fields], timeout_s: float, traceparent: bytes = b"") -> list[Result]:
        """Enqueue records and wait for their results.

        Args:
            records: input fields of each record.
            timeout_s: seconds after which a record without a result fails with `DeadlineExceeded`. No node begins the record
                afterwards.
            traceparent: W3C Trace Context of the request.

        Returns:
            The results, in order. The result of a failed record is its error.

        Raises:
            QueueFull: the queue has no room.
            ConnectionLost: Redis cannot be reached, or went away.
            RedisRefused: Redis answered with an error, and a retry is of no use.
            ResultTimeout: Redis has not even answered.
        """
        loop = asyncio.get_running_loop()
        expires_s = loop.time() + timeout_s
        records = await self._packed(records)
        uris = [f"{self._uris}-{next(self._numbers)}" for _ in records]
        call = _Call({uri: self._replies.expect(uri) for uri in uris}, timeout_s)
        trailer = [*self._replies.reply, keys.TRACEPARENT, traceparent] if traceparent else self._replies.reply
        batch = [[keys.URI, uri.encode(), *record, *trailer] for uri, record in zip(uris, records, strict=True)]
        expiry = loop.call_at(expires_s, call.expire)
        ids: asyncio.Future[list[bytes]] | None = None
        try:
            if not self._replies.is_open:
                await self._have_stream(expires_s - loop.time())
            call.begun_s = perf_counter()
            ids = self._admission.put(batch, expires_s - loop.time())
            ids.add_done_callback(call.sent)
            results: list[Result] = []
            for future in call.waiting.values():
                results.append(await future)  # each await in a comprehension would pass one more coroutine
            self._timers.observe(Timer.REDIS_PUT, call.put_s)
            self._timers.observe(Timer.REDIS_WAIT, perf_counter() - call.begun_s - call.put_s)
            return results
        finally:
            expiry.cancel()
            if ids is not None and (loop.time() >= expires_s or not call.is_answered):
                self._take_back(ids)
            for uri in uris:
                self._replies.forget(uri)

    async def enqueue(
        self, uris: Sequence[bytes], records: Sequence[Fields], reply: str, timeout_s: float, traceparent: bytes
    ) -> list[bytes]:
        """Enqueue records whose results go elsewhere, and return the ids of their entries.

        Args:
            uris: uri of each record.
            records: input fields of each record.
            reply: key for the results.
            timeout_s: seconds after which no node begins the records any more.
            traceparent: W3C Trace Context of the request, or empty.

        Raises:
            QueueFull: the queue has no room.
            ConnectionLost: Redis cannot be reached, or went away, or too few replicas have the records.
            RedisRefused: Redis answered with an error, and a retry is of no use.
        """
        records = await self._packed(records)
        trailer = [keys.REPLY, reply.encode(), *([keys.TRACEPARENT, traceparent] if traceparent else ())]
        batch = [[keys.URI, uri, *record, *trailer] for uri, record in zip(uris, records, strict=True)]
        return await self._durable.put(batch, timeout_s, durable=True)

    async def close(self) -> None:
        """End the waiting calls with `ConnectionLost`, and delete the reply stream. The sending connection stays open."""
        self._replies.abandon()
        await self._admission.close()
        if self._copying is not None:
            await self._durable.close()
            await self._copying.close()
        await cancel(self._tasks)
        await self._replies.close()

    async def _packed(self, records: Sequence[Fields]) -> Sequence[Fields]:
        """Return records as they are sent. No request waits until the nodes are asked for."""
        if self._packing is None:
            return records
        if self._packing.is_due:
            self._begin(self._packing.ask(self._timeout_s, self._timeout_s))
        size = sum(len(content) for record in records for content in record)
        if size <= _LARGE_BYTES:
            return self._packing.packed(records)
        return await asyncio.to_thread(self._packing.packed, records)

    async def _have_stream(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._replies.have_stream(0)
        except TimeoutError as error:
            raise ResultTimeout(f"Redis has not answered in {round(timeout_s, 3):g} s") from error

    def _take_back(self, ids: asyncio.Future[list[bytes]]) -> None:
        """Withdraw records without a waiting caller: the caller has gone, or the time is over."""

        async def tidy() -> None:
            with suppress(ClusterServingError):  # then the records expire by their deadline
                await self._sending.run(CANCEL, [self._job], [keys.GROUP, *await ids])

        if not self._admission.withdraw(ids):
            self._begin(tidy())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Call:
    """Records of one request on their way.

    Attributes:
        waiting: results still to come, by uri.
        begun_s: time when the records were given to the admission, of `perf_counter`.
        put_s: seconds until Redis had taken the records.
    """

    __slots__ = ("_timeout_s", "begun_s", "put_s", "waiting")

    def __init__(self, waiting: dict[str, asyncio.Future[Result]], timeout_s: float) -> None:
        self.waiting = waiting
        self.begun_s = self.put_s = 0.0
        self._timeout_s = timeout_s

    @property
    def is_answered(self) -> bool:
        """True if every record has a result or an error."""
        return all(future.done() and not future.cancelled() for future in self.waiting.values())

    def sent(self, ids: asyncio.Future[list[bytes]]) -> None:
        """Note the time when Redis has taken the records, or fail the waiting results."""
        if ids.cancelled():
            return
        self.put_s = perf_counter() - self.begun_s
        error = ids.exception()
        if isinstance(error, Exception):
            for future in self.waiting.values():
                fail(future, error)

    def expire(self) -> None:
        """Answer the records without a result: their time is over."""
        error = ErrorCode.DEADLINE_EXCEEDED, f"no result in {self._timeout_s:g} s"
        for uri, future in self.waiting.items():
            if not future.done():
                future.set_result(Result(uri, {}, error=error))
