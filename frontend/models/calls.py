"""Records into the queues of one Redis, and their results back. Records of concurrent requests leave together.

One reply stream serves every job and every call of this process, and one blocking read waits for all results.
"""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter

from cluster_serving.client import keys
from cluster_serving.client.aio.admission import AsyncAdmission, fail
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.aio.replies import AsyncReplies, cancel
from cluster_serving.client.errors import ClusterServingError, ErrorCode, ResultTimeout
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.result import Result
from cluster_serving.frontend.metrics.timers import Timer, WorkerTimers

Waiting = dict[str, asyncio.Future[Result]]
"""Results still to come, by uri."""

_CANCEL = Script(Path(__file__).with_name("cancel.lua").read_text())


class Calls:
    """Calls of one process of a frontend to the jobs of one Redis.

    Args:
        settings: settings of the Redis.
        timers: timers of this process.
    """

    def __init__(self, settings: RedisSettings, timers: WorkerTimers) -> None:
        self.settings = settings
        self._timers = timers
        self._id = uuid.uuid4().hex[:12]
        self._sending = AsyncLink(settings)
        key = keys.frontend_reply_key(self._id)
        self._replies = AsyncReplies(settings, key, self._sending, partial(timers.observe, Timer.REDIS_GET))
        self._reply = [keys.REPLY, self._replies.key.encode()]
        self._numbers = count()
        self._admissions: dict[str, AsyncAdmission] = {}
        self._tidying: set[asyncio.Task[None]] = set()

    def open(self, job: str, window_s: float = 0, window_calls: int = 1) -> AsyncAdmission:
        """Return the admission to a job's stream. The first call sets the windows."""
        if job not in self._admissions:
            self._admissions[job] = AsyncAdmission(self._sending, job, 0, window_s, window_calls)
        return self._admissions[job]

    async def run(
        self, admission: AsyncAdmission, records: Sequence[Fields], timeout_s: float, traceparent: bytes = b""
    ) -> list[Result]:
        """Enqueue records and wait for their results.

        Args:
            admission: admission to the job, from `open`.
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
        trailer = [*self._reply, keys.TRACEPARENT, traceparent] if traceparent else self._reply
        waiting: Waiting = {}
        batch: list[Fields] = []
        for record in records:
            uri = f"{self._id}-{next(self._numbers)}"
            waiting[uri] = self._replies.expect(uri)
            batch.append([keys.URI, uri.encode(), *record, *trailer])
        expiry = loop.call_later(timeout_s, _expire, waiting, timeout_s)
        ids: asyncio.Future[list[bytes]] | None = None
        try:
            if not self._replies.is_open:
                await self._have_stream(timeout_s)
            on_sent = _OnSent(waiting)
            ids = admission.put(batch, expires_s - loop.time())
            ids.add_done_callback(on_sent)
            results: list[Result] = []
            for future in waiting.values():
                results.append(await future)  # each await in a comprehension would pass one more coroutine
            self._timers.observe(Timer.REDIS_PUT, on_sent.put_s)
            self._timers.observe(Timer.REDIS_WAIT, perf_counter() - on_sent.begun_s - on_sent.put_s)
            return results
        finally:
            expiry.cancel()
            expired = loop.time() >= expires_s
            if ids is not None and (expired or any(not each.done() or each.cancelled() for each in waiting.values())):
                self._take_back(admission, ids)
            for uri in waiting:
                self._replies.forget(uri)

    async def save(self, key: str, values: dict[str, str]) -> None:
        """Put fields into a hash.

        Raises:
            ConnectionLost: Redis cannot be reached.
            RedisRefused: the hash may not be written.
        """
        await self._sending.call_checked(("HSET", key, *(part for pair in values.items() for part in pair)))

    async def close(self) -> None:
        """Close the connections and cancel the waiting calls."""
        self._replies.cancel()
        for admission in self._admissions.values():
            await admission.close()
        await cancel(self._tidying)
        await self._replies.close()
        await self._sending.close()

    async def _have_stream(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._replies.have_stream(0)
        except TimeoutError as error:
            raise ResultTimeout(f"Redis has not answered in {timeout_s:g} s") from error

    def _take_back(self, admission: AsyncAdmission, ids: asyncio.Future[list[bytes]]) -> None:
        """Withdraw records without a waiting caller: the caller has gone, or the time is over."""
        if not admission.withdraw(ids):
            task = asyncio.create_task(self._cancel(admission.job, ids))
            self._tidying.add(task)
            task.add_done_callback(self._tidying.discard)

    async def _cancel(self, job: str, ids: asyncio.Future[list[bytes]]) -> None:
        with suppress(ClusterServingError):  # then the records expire by their deadline
            await self._sending.run(_CANCEL, [job], [keys.GROUP, *await ids])


class _OnSent:
    """Callback that notes the time when Redis has taken the records of a call, or fails the waiting results."""

    __slots__ = ("_waiting", "begun_s", "put_s")

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self.begun_s = perf_counter()
        self.put_s = 0.0

    def __call__(self, ids: asyncio.Future[list[bytes]]) -> None:
        if ids.cancelled():
            return
        self.put_s = perf_counter() - self.begun_s
        error = ids.exception()
        if isinstance(error, Exception):
            for future in self._waiting.values():
                fail(future, error)


def _expire(waiting: Waiting, timeout_s: float) -> None:
    error = ErrorCode.DEADLINE_EXCEEDED, f"no result in {timeout_s:g} s"
    for uri, future in waiting.items():
        if not future.done():
            future.set_result(Result(uri, {}, error=error))
