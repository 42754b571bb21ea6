"""Puts records on the queue, and waits for the results of those that want to, for asyncio.

Calls that are made at the same time share everything: their records leave in one call of Redis with whatever else has gathered
while the last one was under way, and one blocking read of the reply stream serves all that wait.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Self, TypeGuard, TypeVar

import redis

from cluster_serving.client import keys, original
from cluster_serving.client.aio_link import AsyncLink
from cluster_serving.client.api import Api
from cluster_serving.client.commands import (
    CHUNK,
    ENQUEUE,
    REPLIES_AT_ONCE,
    REPLY_LIFE_MS,
    WINDOW,
    Dialect,
    Fields,
    as_inputs,
    check_dialect,
    enqueue_arguments,
    memory_full,
    next_id,
    plain,
    plain_or_error,
    queue_full,
    read_replies,
    reply_of,
    request_fields,
)
from cluster_serving.client.errors import ConnectionLost, InvalidValue, QueueFull, ResultTimeout
from cluster_serving.client.link import is_out_of_memory
from cluster_serving.client.values import encode_record
from cluster_serving.client.wire import Result

T = TypeVar("T")

_BLOCK_MS = 1000


class _Call:
    """Records that are enqueued together: those that are still left, and the ids of all, once they have been taken."""

    __slots__ = ("_taken", "ids", "left")

    def __init__(self, records: list[Fields], ids: asyncio.Future[list[bytes]]) -> None:
        self.left = records
        self.ids = ids
        self._taken: list[bytes] = []

    def accept(self, entry_ids: list[bytes]) -> None:
        """Redis has taken the first of those that are left."""
        self._taken += entry_ids
        self.left = self.left[len(entry_ids) :]
        if not self.left and not self.ids.done():
            self.ids.set_result(self._taken)

    def fail(self, error: Exception) -> None:
        """Redis will not take the others."""
        if isinstance(error, QueueFull):
            error = QueueFull(str(error), len(self._taken))
        _fail(self.ids, error)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # now seen: whoever waited may have ended by another error, and the event loop would complain


class AsyncInputQueue(Api):
    """`InputQueue` for asyncio; for one event loop.

    Args:
        dialect: `native`, or `original` for `enqueue` as the original's clients do; `predict` needs `native`.
        patience_s: how long `enqueue` waits for room in a full queue before it raises `QueueFull`.
        settings: host, port, name, ...: see `Api`.

    Raises:
        ConnectionLost: from every method that talks to Redis.
    """

    def __init__(self, *, dialect: str = "native", patience_s: float = 10.0, **settings: Any) -> None:
        super().__init__(**settings)
        self._dialect: Dialect = check_dialect(dialect)
        self._patience_s = patience_s
        self._sending = AsyncLink(self.settings)
        self._receiving = AsyncLink(self.settings)
        self._reply_key = keys.reply_key(self.name, self._client_id)
        self._last = b"0-0"
        self._numbers = count()
        self._unsent: deque[_Call] = deque()
        self._waiting: dict[str, asyncio.Future[Result]] = {}
        self._sender: asyncio.Task[None] | None = None
        self._opener: asyncio.Task[None] | None = None
        self._receiver: asyncio.Task[None] | None = None

    async def enqueue(self, uri: str, **data: Any) -> str:
        """Put one record on the queue; as `InputQueue.enqueue`."""
        (entry_id,) = await self._send([request_fields(self._dialect, uri, data)])
        return entry_id.decode()

    async def enqueue_many(
        self, records: Iterable[tuple[str, Mapping[str, Any]]] | AsyncIterable[tuple[str, Mapping[str, Any]]]
    ) -> int:
        """Put records on the queue, 64 at a time; how many there were. As `InputQueue.enqueue_many`."""
        accepted = 0
        chunk: list[Fields] = []
        try:
            async for uri, data in _each(records):
                chunk.append(request_fields(self._dialect, uri, data))
                if len(chunk) == CHUNK:
                    accepted += len(await self._send(chunk))
                    chunk = []
            return accepted + (len(await self._send(chunk)) if chunk else 0)
        except QueueFull as error:
            error.accepted += accepted
            raise

    def data_to_b64(self, **data: Any) -> str:
        """The inputs as the original dialect sends them; as `InputQueue.data_to_b64`."""
        return original.encode_record(data)

    async def predict(self, request: Any, timeout: float = 5) -> Any:
        """Send one record and wait for its result; as `InputQueue.predict`."""
        return plain(await self._result(request, timeout))

    async def predict_many(
        self, requests: Iterable[Any] | AsyncIterable[Any], timeout: float = 60, window: int = WINDOW
    ) -> AsyncGenerator[Any]:
        """Send records and give their results in the same order; as `InputQueue.predict_many`."""
        pending: deque[asyncio.Task[Result]] = deque()
        try:
            async for request in _each(requests):
                pending.append(asyncio.create_task(self._result(request, timeout)))
                if len(pending) >= window:
                    yield plain_or_error(await pending.popleft())
            while pending:
                yield plain_or_error(await pending.popleft())
        finally:
            await _cancel(pending)

    async def as_completed(
        self,
        records: Iterable[tuple[str, Mapping[str, Any]]] | AsyncIterable[tuple[str, Mapping[str, Any]]],
        timeout: float = 60,
        window: int = WINDOW,
    ) -> AsyncGenerator[Result]:
        """Send records and give their results as they come; as `InputQueue.as_completed`."""
        pending: set[asyncio.Task[Result]] = set()
        try:
            async for uri, data in _each(records):
                pending.add(asyncio.create_task(self._result(data, timeout, uri)))
                if len(pending) >= window:
                    done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        yield task.result()
                        pending.remove(task)
            for coming in asyncio.as_completed(pending):
                yield await coming
        finally:
            await _cancel(pending)

    async def close(self) -> None:
        """Close the connections; calls that wait are cancelled. A later call opens them again."""
        for waiting in self._waiting.values():
            waiting.cancel()
        while self._unsent:
            self._unsent.popleft().ids.cancel()
        await _cancel([task for task in (self._sender, self._opener, self._receiver) if task is not None])
        if self._sending.connected:
            with suppress(ConnectionLost):  # then it expires by itself
                await self._sending.call(("DEL", self._reply_key))
        await self._sending.close()
        await self._receiving.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _result(self, request: Any, timeout: float, uri: str | None = None) -> Result:
        if self._dialect == "original":
            raise InvalidValue(
                "predict needs the native dialect: results of the original are read with AsyncOutputQueue"
            )
        if uri is None:
            uri = f"{self._client_id}-{next(self._numbers)}"
        if uri in self._waiting:
            raise InvalidValue(f"two records under way have the uri {uri!r}")
        fields = [*encode_record(uri, as_inputs(request)), keys.REPLY, self._reply_key.encode()]
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting[uri] = future
        try:
            async with asyncio.timeout(timeout):
                await self._have_receiver()
                await self._send([fields])
                return await future
        except TimeoutError as error:
            raise ResultTimeout(f"no result of {uri!r} in {timeout} s; is a node of this job running?") from error
        finally:
            del self._waiting[uri]

    async def _have_receiver(self) -> None:
        """Have a reply stream and a task that reads it; calls that come at once share one opening."""
        if _is_running(self._receiver):
            return
        if not _is_running(self._opener):
            self._opener = asyncio.create_task(self._open())
        await asyncio.shield(self._opener)

    async def _open(self) -> None:
        await self._make_stream()
        self._receiver = asyncio.create_task(self._receive())

    async def _make_stream(self) -> None:
        """Make the reply stream, unless it is there: results go only to a stream that exists (NOMKSTREAM)."""
        made, _ = await self._sending.call(
            ("XGROUP", "CREATE", self._reply_key, "client", "$", "MKSTREAM"),
            ("PEXPIRE", self._reply_key, REPLY_LIFE_MS),
        )
        if not isinstance(made, redis.ResponseError):
            self._last = b"0-0"  # after a failover the ids of a new stream may be smaller than those of the old one
        elif is_out_of_memory(made):
            raise memory_full(self.name, made, 0)
        elif not str(made).startswith("BUSYGROUP"):
            raise made

    def _send(self, records: list[Fields]) -> asyncio.Future[list[bytes]]:
        """Give records to the sender, which takes all that has gathered while its last call was under way."""
        call = _Call(records, asyncio.get_running_loop().create_future())
        self._unsent.append(call)
        if not _is_running(self._sender):
            self._sender = asyncio.create_task(self._send_gathered())
        return call.ids

    async def _send_gathered(self) -> None:
        while self._unsent:
            calls = self._gather()
            try:
                await self._admit(calls)
            except Exception as error:
                for call in calls:
                    call.fail(error)
            finally:
                for call in calls:
                    call.ids.cancel()  # does nothing to those that are done: all, unless `close` has ended this task

    def _gather(self) -> list[_Call]:
        """The calls whose records go out next, together."""
        calls: list[_Call] = []
        size = 0
        while self._unsent and size < CHUNK:
            calls.append(self._unsent.popleft())
            size += len(calls[-1].left)
        return calls

    async def _admit(self, calls: list[_Call]) -> None:
        """Enqueue the records of these calls in order, waiting for room if need be."""
        loop = asyncio.get_running_loop()
        deadline_s, pause_s = loop.time() + self._patience_s, 0.01
        while full := await self._enqueue([call for call in calls if not call.ids.done()]):
            if loop.time() + pause_s > deadline_s:
                raise full
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.5)

    async def _enqueue(self, calls: list[_Call]) -> QueueFull | None:
        """Enqueue what there is room for; why it was not all, if so."""
        batch = [fields for call in calls for fields in call.left]
        try:
            taken = await self._sending.run(ENQUEUE, *enqueue_arguments(self.name, batch)) if batch else []
        except redis.ResponseError as error:
            if not is_out_of_memory(error):
                raise
            return memory_full(self.name, error, 0)
        last = 0
        for call in calls:
            first, last = last, last + len(call.left)
            call.accept(taken[first:last])
        return None if len(taken) == len(batch) else queue_full(self.name, 0)

    async def _receive(self) -> None:
        """Read the reply stream for everybody, for as long as somebody waits."""
        try:
            while self._waiting:
                await self._read_replies()
        except Exception as error:
            for waiting in self._waiting.values():
                _fail(waiting, error)

    async def _read_replies(self) -> None:
        is_there, _, entries = await self._receiving.call_checked(
            ("PEXPIRE", self._reply_key, REPLY_LIFE_MS),
            ("XTRIM", self._reply_key, "MINID", next_id(self._last)),
            ("XREAD", "COUNT", REPLIES_AT_ONCE, "BLOCK", _BLOCK_MS, "STREAMS", self._reply_key, self._last),
            timeout_s=_BLOCK_MS / 1000 + self.settings.timeout_s,
        )
        if not is_there:  # FLUSHALL, a failover, or this process slept for longer than the stream lives
            await self._make_stream()
        for entry_id, fields in read_replies(entries):
            self._last = entry_id
            result = reply_of(fields)
            future = self._waiting.get(result.uri)
            if future is not None and not future.done():
                future.set_result(result)


async def _each(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def _is_running(task: asyncio.Task[None] | None) -> TypeGuard[asyncio.Task[None]]:
    return task is not None and not task.done()


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
