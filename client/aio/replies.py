"""One reply stream for all waiting calls of an event loop. One blocking read serves all calls."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from time import monotonic, perf_counter
from typing import Any, TypeGuard

from cluster_serving.client.aio.admission import fail
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.errors import ConnectionLost, InvalidValue, QueueFull, RedisRefused
from cluster_serving.client.protocol.admission import queue_full
from cluster_serving.client.protocol.reply_stream import REPLIES_AT_ONCE, REPLY_LIFE_MS, next_id
from cluster_serving.client.protocol.resp import Argument, is_out_of_memory
from cluster_serving.client.protocol.results import result_in
from cluster_serving.client.protocol.retrying import Attempts
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.reply import read_replies
from cluster_serving.client.wire.result import Result

_BLOCK_MS = 1000
_KEPT_S = REPLY_LIFE_MS / 6000  # longest time between two renewals of the stream's time to live
_UNTRIMMED_BYTES = 1 << 16


class AsyncReplies:
    """`replies.Replies` for asyncio.

    Args:
        settings: settings of the reading connection.
        key: key of the stream.
        sending: connection that makes the stream.
        on_read: called after each read with the seconds spent on decoding the results.

    Attributes:
        vanished: True if the stream was deleted while calls were waiting.
    """

    def __init__(
        self,
        settings: RedisSettings,
        key: str,
        sending: AsyncLink,
        on_read: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.key = key
        self.vanished = False
        self._settings = settings
        self._sending = sending
        self._on_read = on_read
        self._receiving = AsyncLink(settings)
        self._last = b"0-0"
        self._idle = True  # True if the last read found no entry
        self._untrimmed = 0
        self._touched_s = float("-inf")
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
            self.vanished = False
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
                await self._sending.call(("DEL", self.key))
        await self._receiving.close()

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
        attempts = Attempts(loop.time() + patience_s)
        while not _is_running(self._receiver):
            if not _is_running(self._opener):
                self._opener = asyncio.create_task(self._open())
            try:
                await asyncio.shield(self._opener)
            except (QueueFull, ConnectionLost) as error:
                await asyncio.sleep(attempts.pause_s(error, loop.time()))

    async def _open(self) -> None:
        try:
            await self._make_stream()
        except ConnectionLost as error:
            error.unsent = True  # the records to enqueue have not been sent
            raise
        self._receiver = asyncio.create_task(self._receive())

    async def _make_stream(self) -> None:
        """Make the reply stream if it does not exist, because results go only to an existing stream (NOMKSTREAM)."""
        made, _ = await self._sending.call(
            ("XGROUP", "CREATE", self.key, "client", "$", "MKSTREAM"),
            ("PEXPIRE", self.key, REPLY_LIFE_MS),
        )
        if not isinstance(made, RedisRefused):
            # After a failover the ids of a new stream may be smaller than the ids of the old stream.
            self._last = b"0-0"
        elif is_out_of_memory(made):
            raise queue_full(f"the reply stream {self.key}: {made}")
        elif not str(made).startswith("BUSYGROUP"):
            raise await self._sending.raised_for(RedisRefused(f"cannot make the reply stream {self.key}: {made}"))

    async def _receive(self) -> None:
        """Read the reply stream for all calls, as long as a call waits."""
        try:
            while self._waiting:
                await self._read_replies()
        except Exception as error:
            if isinstance(error, ConnectionLost):
                error.unsent = False  # the records of the waiting calls have been sent
            for waiting in self._waiting.values():
                fail(waiting, error)

    async def _read_replies(self) -> None:
        now_s = monotonic()
        # An idle read makes the renewal due too, so that a vanished stream is noticed.
        due = self._idle or self._untrimmed >= _UNTRIMMED_BYTES or now_s - self._touched_s >= _KEPT_S
        commands: list[tuple[Argument, ...]] = []
        if due:
            # Keep the stream alive, and delete the entries that have been read.
            self._untrimmed, self._touched_s = 0, now_s
            commands += (("PEXPIRE", self.key, REPLY_LIFE_MS), ("XTRIM", self.key, "MINID", next_id(self._last)))
        commands.append(("XREAD", "COUNT", REPLIES_AT_ONCE, "BLOCK", _BLOCK_MS, "STREAMS", self.key, self._last))
        replies = await self._receiving.call_checked(*commands, timeout_s=_BLOCK_MS / 1000 + self._settings.timeout_s)
        if due and not replies[0]:  # FLUSHALL, a failover, or a process that slept for longer than the stream lives
            self.vanished = True
            await self._make_stream()
        begun_s = perf_counter()
        entries = read_replies(replies[-1])
        for entry_id, found in entries:
            self._last = entry_id
            for reply in found:
                self._untrimmed += len(reply.packed)
                result = result_in(reply)
                future = self._waiting.get(result.uri)
                if future is not None and not future.done():
                    future.set_result(result)
        self._idle = not entries
        self._on_read(perf_counter() - begun_s)


def _is_running(task: asyncio.Task[None] | None) -> TypeGuard[asyncio.Task[None]]:
    return task is not None and not task.done()


async def cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
