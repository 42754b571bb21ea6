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
        uris = [f"{self._id}-{next(self._numbers)}" for _ in records]
        call = _Call({uri: self._replies.expect(uri) for uri in uris}, timeout_s)
        trailer = [*self._replies.reply, keys.TRACEPARENT, traceparent] if traceparent else self._replies.reply
        batch = [[keys.URI, uri.encode(), *record, *trailer] for uri, record in zip(uris, records, strict=True)]
        expiry = loop.call_later(timeout_s, call.expire)
        ids: asyncio.Future[list[bytes]] | None = None
        try:
            if not self._replies.is_open:
                await self._have_stream(timeout_s)
            call.begun_s = perf_counter()
            ids = admission.put(batch, expires_s - loop.time())
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
                self._take_back(admission, ids)
            for uri in uris:
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

        async def tidy() -> None:
            with suppress(ClusterServingError):  # then the records expire by their deadline
                await self._sending.run(_CANCEL, [admission.job], [keys.GROUP, *await ids])

        if not admission.withdraw(ids):
            task = asyncio.create_task(tidy())
            self._tidying.add(task)
            task.add_done_callback(self._tidying.discard)


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
