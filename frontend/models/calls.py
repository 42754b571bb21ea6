"""Records into the queues of one Redis, and their results back: what concurrent requests bring leaves together.

One reply stream serves every job and every call of this process, and one blocking read waits for all of them.
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
"""By uri what is still to come."""

_CANCEL = Script(Path(__file__).with_name("cancel.lua").read_text())


class Calls:
    """Calls of one process of a frontend to the jobs of one Redis.

    Args:
        settings: of that Redis.
        timers: of this process.
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
        """The way into a job's stream; the windows are those of the first call."""
        if job not in self._admissions:
            self._admissions[job] = AsyncAdmission(self._sending, job, 0, window_s, window_calls)
        return self._admissions[job]

    async def run(
        self, admission: AsyncAdmission, records: Sequence[Fields], timeout_s: float, traceparent: bytes = b""
    ) -> list[Result]:
        """Enqueue records and wait for their results.

        Args:
            admission: of the job, from `open`.
            records: the fields of the inputs of each.
            timeout_s: a record that has no result by then failed with `DeadlineExceeded`; no node begins it any more.
            traceparent: W3C Trace Context of the request.

        Returns:
            The results, in order; of a record that failed its error.

        Raises:
            QueueFull: there was no room.
            ConnectionLost: Redis cannot be reached, or went away.
            RedisRefused: the same, where trying again is of no use.
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
                results.append(await future)  # in a comprehension each would pass one more coroutine
            self._timers.observe(Timer.REDIS_PUT, on_sent.put_s)
            self._timers.observe(Timer.REDIS_WAIT, perf_counter() - on_sent.begun_s - on_sent.put_s)
            return results
        finally:
            expiry.cancel()
            expired = loop.time() >= expires_s
            if ids is not None and (expired or not all(map(_has_come, waiting.values()))):
                self._take_back(admission, ids)
            for uri in waiting:
                self._replies.forget(uri)

    async def save(self, key: str, values: dict[str, str]) -> None:
        """Put fields into a hash.

        Raises:
            ConnectionLost: Redis cannot be reached.
            RedisRefused: it may not be written.
        """
        await self._sending.call_checked(("HSET", key, *(part for pair in values.items() for part in pair)))

    async def close(self) -> None:
        """Close the connections; calls that wait are cancelled."""
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
        """Nobody waits for these any more: whoever called has gone, or its time is over."""
        if not admission.withdraw(ids):
            task = asyncio.create_task(self._cancel(admission.job, ids))
            self._tidying.add(task)
            task.add_done_callback(self._tidying.discard)

    async def _cancel(self, job: str, ids: asyncio.Future[list[bytes]]) -> None:
        with suppress(ClusterServingError):  # then they expire by their deadline
            await self._sending.run(_CANCEL, [job], [keys.GROUP, *await ids])


class _OnSent:
    """Notes when Redis has taken the records of a call; when it has not, whoever waits for the results is told."""

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


def _has_come(result: asyncio.Future[Result]) -> bool:
    return result.done() and not result.cancelled()


def _expire(waiting: Waiting, timeout_s: float) -> None:
    error = ErrorCode.DEADLINE_EXCEEDED, f"no result in {timeout_s:g} s"
    for uri, future in waiting.items():
        if not future.done():
            future.set_result(Result(uri, {}, error=error))
