"""One reply stream for all waiting calls of an event loop. One blocking read serves all calls."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from time import monotonic, perf_counter
from typing import Any, TypeGuard

from cluster_serving.client.aio.admission import fail
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.errors import (
    ConnectionLost,
    InvalidValue,
    QueueFull,
    RedisRefused,
    ResultTimeout,
    Unavailable,
)
from cluster_serving.client.protocol.reply_stream import BLOCK_S, ReplyStream
from cluster_serving.client.protocol.retrying import Attempts, restated
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.result import Result


class AsyncReplies:
    """`replies.Replies` for asyncio.

    Args:
        settings: settings of the reading connection.
        key: key of the stream.
        sending: connection that makes the stream.
        on_read: called after each read with the seconds spent on decoding the results.

    Attributes:
        reply: field of a record that sends the record's result here.
    """

    def __init__(
        self,
        settings: RedisSettings,
        key: str,
        sending: AsyncLink,
        on_read: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._stream = ReplyStream(key)
        self.reply = self._stream.reply
        self._settings = settings
        self._sending = sending
        self._on_read = on_read
        self._receiving = AsyncLink(settings)
        self._waiting: dict[str, asyncio.Future[Result]] = {}
        self._opener: asyncio.Task[None] | None = None
        self._receiver: asyncio.Task[None] | None = None

    def expect(self, uri: str) -> asyncio.Future[Result]:
        """Return a future for the result of a record. Call `expect` before the record is enqueued.

        Raises:
            InvalidValue: a record with the same uri is already under way.
        """
        if uri in self._waiting:
            raise InvalidValue(f"two records under way have the uri {uri!r}")
        if not self._waiting:
            self._stream.vanished = False
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting[uri] = future
        return future

    def forget(self, uri: str) -> None:
        """Remove a record that no call waits for any more."""
        del self._waiting[uri]

    def cancel(self) -> None:
        """Cancel the waiting calls."""
        for waiting in self._waiting.values():
            waiting.cancel()

    async def close(self) -> None:
        """Delete the stream and close the reading connection. `sending` stays open."""
        await cancel([task for task in (self._opener, self._receiver) if task is not None])
        if self._sending.connected:
            with suppress(ConnectionLost):  # the stream then expires by itself
                await self._sending.call(("DEL", self._stream.key))
        await self._receiving.close()

    def no_result(self, what: str) -> ResultTimeout:
        """Return the error for a result that did not come in time."""
        return self._stream.no_result(what)

    @property
    def is_open(self) -> bool:
        """True while there is a stream and a task that reads the stream."""
        return _is_running(self._receiver)

    async def have_stream(self, patience_s: float) -> None:
        """Make the reply stream and start the reading task, unless both exist. Concurrent calls share one opening.

        Call `have_stream` before enqueueing, because results go only to an existing stream.

        Raises:
            QueueFull: Redis has no memory for the stream.
            ConnectionLost: Redis cannot be reached. `unsent` is true.
            RedisRefused: the key of the stream holds another type.
        """
        loop = asyncio.get_running_loop()
        attempts, give_up_s = Attempts(), loop.time() + patience_s
        while not _is_running(self._receiver):
            if not _is_running(self._opener):
                self._opener = asyncio.create_task(self._open())
            try:
                await asyncio.shield(self._opener)
            except (QueueFull, ConnectionLost) as error:
                await asyncio.sleep(attempts.pause_s(error, loop.time(), give_up_s))

    async def _open(self) -> None:
        try:
            await self._make()
        except ConnectionLost as error:
            raise restated(error, Unavailable) from error.__cause__  # the records to enqueue have not been sent
        self._receiver = asyncio.create_task(self._receive())

    async def _make(self) -> None:
        now_s = monotonic()
        replies = await self._sending.call(*self._stream.make())
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

    async def _read(self) -> None:
        now_s = monotonic()
        if self._stream.is_unsure(now_s):
            await self._make()
        commands = self._stream.read(now_s, BLOCK_S)
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
        self._on_read(perf_counter() - begun_s)


def _is_running(task: asyncio.Task[None] | None) -> TypeGuard[asyncio.Task[None]]:
    return task is not None and not task.done()


async def cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
