"""One reply stream for all waiting calls of an event loop. One blocking read serves all calls."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, perf_counter
from typing import TypeGuard

import redis

from cluster_serving.client.aio.admission import fail
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.aio.tasks import cancel
from cluster_serving.client.errors import ConnectionLost, InvalidValue, QueueFull, ResultTimeout, Unavailable
from cluster_serving.client.protocol.absence import Inquiry
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.reply_stream import BLOCK_S, ReplyStream
from cluster_serving.client.protocol.resp import abandoned, connection_lost
from cluster_serving.client.protocol.retrying import Attempts, connect_s, restated
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.result import Result

_INQUIRY_S = 0.25  # longest delay of an error for the sake of its text


class AsyncReplies:
    """`replies.Replies` for asyncio.

    Args:
        settings: settings of the reading connection.
        key: key of the stream.
        sending: connection that makes the stream.
        on_read: called after each read with the seconds spent on decoding the results.
        inquiry: question about the job of all records, so that calls without a node end early. A frontend has many jobs.

    Attributes:
        reply: field of a record that sends the record's result here.
    """

    def __init__(
        self,
        settings: RedisSettings,
        key: str,
        sending: AsyncLink,
        on_read: Callable[[float], None] = lambda _: None,
        inquiry: Inquiry | None = None,
    ) -> None:
        self._stream = ReplyStream(key)
        self.reply = self._stream.reply
        self._settings = settings
        self._sending = sending
        self._on_read = on_read
        self._inquiry = inquiry
        self._receiving = AsyncLink(settings)
        self._waiting: dict[str, asyncio.Future[Result]] = {}
        self._entries: dict[str, bytes] = {}
        self._opener: asyncio.Task[None] | None = None
        self._receiver: asyncio.Task[None] | None = None
        self._handed_over = True

    def expect(self, uri: str) -> asyncio.Future[Result]:
        """Return a future for the result of a record. Call `expect` before the record is enqueued.

        Raises:
            InvalidValue: a record with the same uri is already under way.
        """
        if uri in self._waiting:
            raise InvalidValue(f"two records under way have the uri {uri!r}")
        if not self._waiting:
            self._stream.settle()
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting[uri] = future
        return future

    def enqueued(self, uri: str, entry: bytes) -> None:
        """Note the id of an expected record's entry, so that a record lost by Redis is not waited for."""
        self._entries[uri] = entry

    def forget(self, uri: str) -> None:
        """Remove a record that no call waits for any more."""
        del self._waiting[uri]
        self._entries.pop(uri, None)

    def abandon(self) -> None:
        """End the waiting calls with `ConnectionLost`."""
        for waiting in self._waiting.values():
            fail(waiting, abandoned())

    async def close(self) -> None:
        """Delete the stream and close the reading connection. `sending` stays open."""
        await cancel([task for task in (self._opener, self._receiver) if task is not None])
        if self._sending.connected:
            with suppress(ConnectionLost, TimeoutError):  # the stream then expires by itself
                async with asyncio.timeout(self._settings.timeout_s):  # another call may have the connection
                    await self._sending.call(("DEL", self._stream.key))
        await self._receiving.close()

    async def no_result(self, what: str, inquiry: Inquiry) -> ResultTimeout:
        """Return the error for a result that did not come in time. Redis is asked for the reason."""
        # Without a stream, the time of the call may have been too short to connect: a Redis that answers now is one.
        silent = connection_lost(self._settings, redis.TimeoutError(), Unavailable)
        reason = inquiry.unanswered if self.is_open else str(silent)
        with suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(_INQUIRY_S):
                reason = inquiry.read_reason(await self._sending.call(*inquiry.for_reason()))
        return self._stream.no_result(what, reason)

    @property
    def is_open(self) -> bool:
        """True while there is a stream and a task that reads the stream."""
        return _is_running(self._receiver)

    async def have_stream(self, patience_s: float) -> None:
        """Make the reply stream and start the reading task, unless both exist. Concurrent calls share one opening.

        Call `have_stream` before enqueueing, because results go only to an existing stream.

        Raises:
            QueueFull: Redis has no memory for the stream.
            ConnectionLost: Redis cannot be reached, and `unsent` is true, or `close` was called.
            RedisRefused: the key of the stream holds another type.
        """
        loop = asyncio.get_running_loop()
        attempts, give_up_s = Attempts(), loop.time() + patience_s
        while not _is_running(self._receiver):
            if not _is_running(self._opener):
                self._opener = asyncio.create_task(self._open(connect_s(give_up_s - loop.time())))
            opener = self._opener
            await asyncio.wait([opener])
            if opener.cancelled():
                raise abandoned()
            try:
                opener.result()
            except (QueueFull, ConnectionLost) as error:
                await asyncio.sleep(attempts.pause_s(error, loop.time(), give_up_s))

    async def _open(self, within_s: float) -> None:
        if self._receiving.is_stale or not self._receiving.connected:
            self._stream.doubt()  # the next read may reach another master, with other entries
        try:
            await self._make(within_s)
        except ConnectionLost as error:
            raise restated(error, Unavailable) from None  # the records to enqueue have not been sent
        self._receiver = asyncio.create_task(self._receive())

    async def _make(self, within_s: float | None = None) -> None:
        now_s = monotonic()
        replies = await self._sending.call(*self._stream.make(), connect_s=within_s)
        try:
            self._stream.made(replies, now_s)
        except RedisRefused as refusal:
            await self._sending.raise_for(refusal)

    async def _receive(self) -> None:
        """Read the reply stream for all calls, as long as a call waits."""
        try:
            while self._waiting:
                await self._read()
        except Exception as error:
            if isinstance(error, ConnectionLost):
                error = restated(error, ConnectionLost)  # the records of the waiting calls have been sent
            for waiting in self._waiting.values():
                fail(waiting, error)

    async def _read(self, block_s: float = BLOCK_S) -> None:
        if not self._handed_over:
            self._stream.doubt()
        now_s = monotonic()
        if self._stream.is_unsure(now_s):
            await self._make()
        commands = self._stream.read(now_s, block_s)
        self._handed_over = False  # until the end, so that an interrupt loses no result
        replies = await self._receiving.call(*commands, timeout_s=BLOCK_S + self._settings.timeout_s)
        begun_s = perf_counter()
        try:
            results = self._stream.results(replies)
        except RedisRefused as refusal:
            await self._receiving.raise_for(refusal)
        for result in results:
            future = self._waiting.get(result.uri)
            if future is not None and not future.done():
                future.set_result(result)
        self._handed_over = True
        self._on_read(perf_counter() - begun_s)
        if self._stream.is_silent and self._inquiry is not None:
            await self._end_hopeless(self._inquiry)

    async def _end_hopeless(self, inquiry: Inquiry) -> None:
        """Fail the calls without hope of a result: no node has ever served the job, or Redis has lost the record."""
        entries = list(self._entries.values()) if self._stream.vanished else []
        hope = inquiry.read_hope(await self._receiving.call(*inquiry.for_hope(entries, len(entries))))
        no_node = not (hope.served or self._stream.answered)
        lost = [uri for uri in self._waiting if no_node or self._entries.get(uri) in hope.lost]
        if lost:
            await self._read(0)  # a result may have come before Redis was asked
            reason = inquiry.read_reason(await self._receiving.call(*inquiry.for_reason()))
            for uri in lost:
                if (waiting := self._waiting.get(uri)) is not None:
                    fail(waiting, self._stream.no_result(f"of {uri!r} in time", reason))


def _is_running(task: asyncio.Task[None] | None) -> TypeGuard[asyncio.Task[None]]:
    return task is not None and not task.done()
