"""The same queues for asyncio.

Calls that are made at the same time share everything: their records leave in one call of Redis with whatever else has gathered
while the last one was under way, and one blocking read of the reply stream serves all that wait.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Self, TypeVar

import redis

from cluster_serving.client import keys
from cluster_serving.client.aio_link import AsyncLink
from cluster_serving.client.api import Api
from cluster_serving.client.commands import (
    ENQUEUE,
    REPLY_LIFE_MS,
    TAKE,
    Dialect,
    Fields,
    as_inputs,
    check_dialect,
    enqueue_arguments,
    escape_glob,
    memory_full,
    next_id,
    plain,
    plain_or_error,
    plain_or_failed,
    queue_full,
    read_replies,
    reply_of,
    request_fields,
    result_of,
    taken_result,
)
from cluster_serving.client.connection import is_out_of_memory
from cluster_serving.client.errors import ClusterServingError, ConnectionLost, ResultTimeout
from cluster_serving.client.values import encode_record
from cluster_serving.client.wire import Result

T = TypeVar("T")

_CHUNK = 64
_BLOCK_S = 10.0
_MOST_AT_ONCE = 1024


class AsyncInputQueue(Api):
    """`InputQueue` for asyncio; for one event loop.

    Args:
        dialect: `native`, or `original` for `enqueue` as the original's clients do.
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
        self._unsent: deque[tuple[Fields, asyncio.Future[str]]] = deque()
        self._waiting: dict[str, asyncio.Future[Result]] = {}
        self._sender: asyncio.Task[None] | None = None
        self._receiver: asyncio.Task[None] | None = None

    async def enqueue(self, uri: str, **data: Any) -> str:
        """Put one record on the queue; as `InputQueue.enqueue`."""
        return await self._send(request_fields(self._dialect, uri, data))

    async def enqueue_many(self, records: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
        """Put records on the queue, 64 at a time; how many there were. As `InputQueue.enqueue_many`."""
        accepted = 0
        chunk: list[asyncio.Future[str]] = []
        for uri, data in records:
            chunk.append(self._send(request_fields(self._dialect, uri, data)))
            if len(chunk) == _CHUNK:
                accepted += len(await asyncio.gather(*chunk))
                chunk = []
        return accepted + len(await asyncio.gather(*chunk))

    async def predict(self, request: Any, timeout: float = 5) -> Any:
        """Send one record and wait for its result; as `InputQueue.predict`."""
        return plain(await self._result(request, timeout))

    async def predict_many(
        self, requests: Iterable[Any] | AsyncIterable[Any], timeout: float = 60, window: int = 1024
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
        self, records: Iterable[tuple[str, Mapping[str, Any]]], timeout: float = 60, window: int = 1024
    ) -> AsyncGenerator[Result]:
        """Send records and give their results as they come; as `InputQueue.as_completed`."""
        pending: set[asyncio.Task[Result]] = set()
        try:
            for uri, data in records:
                pending.add(asyncio.create_task(self._result(data, timeout, uri)))
                if len(pending) >= window:
                    done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        yield task.result()
            for coming in asyncio.as_completed(pending):
                yield await coming
        finally:
            await _cancel(pending)

    async def close(self) -> None:
        """Close the connections; calls that wait are cancelled."""
        await _cancel([task for task in (self._sender, self._receiver) if task is not None])
        self._sender = self._receiver = None
        for waiting in self._waiting.values():
            waiting.cancel()
        for _, unsent in self._unsent:
            unsent.cancel()
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
        uri = uri or f"{self._client_id}-{next(self._numbers)}"
        fields = [*encode_record(uri, as_inputs(request)), keys.REPLY, self._reply_key.encode()]
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting[uri] = future
        try:
            async with asyncio.timeout(timeout):
                if self._receiver is None or self._receiver.done():
                    await self._open()
                await self._send(fields)
                return await future
        except TimeoutError as error:
            raise ResultTimeout(f"no result of {uri!r} in {timeout} s; is a node of this job running?") from error
        finally:
            self._waiting.pop(uri, None)

    async def _open(self) -> None:
        # BUSYGROUP means that the stream is there already, which is all that is wanted.
        await self._sending.call(
            ("XGROUP", "CREATE", self._reply_key, "client", "$", "MKSTREAM"),
            ("PEXPIRE", self._reply_key, REPLY_LIFE_MS),
        )
        if self._receiver is None or self._receiver.done():
            self._receiver = asyncio.create_task(self._receive())

    def _send(self, fields: Fields) -> asyncio.Future[str]:
        """Give a record to the sender, which takes all that has gathered while its last call was under way."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._unsent.append((fields, future))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_gathered())
        return future

    async def _send_gathered(self) -> None:
        while self._unsent:
            batch = [self._unsent.popleft() for _ in range(min(_CHUNK, len(self._unsent)))]
            try:
                await self._send_batch(batch)
            except (ClusterServingError, redis.ResponseError) as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)

    async def _send_batch(self, batch: list[tuple[Fields, asyncio.Future[str]]]) -> None:
        loop = asyncio.get_running_loop()
        deadline_s, pause_s = loop.time() + self._patience_s, 0.01
        while True:
            try:
                taken = await self._sending.run(ENQUEUE, *enqueue_arguments(self.name, [fields for fields, _ in batch]))
                full = queue_full(self.name, 0)
            except redis.ResponseError as error:
                if not is_out_of_memory(error):
                    raise
                taken, full = [], memory_full(self.name, error, 0)
            for entry_id, (_, future) in zip(taken, batch, strict=False):
                if not future.done():
                    future.set_result(entry_id.decode())
            batch = batch[len(taken) :]
            if not batch:
                return
            if loop.time() + pause_s > deadline_s:
                raise full
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.5)

    async def _receive(self) -> None:
        """Read the reply stream for everybody, for as long as somebody waits."""
        while self._waiting:
            try:
                _, _, reply = await self._receiving.call(
                    ("PEXPIRE", self._reply_key, REPLY_LIFE_MS),
                    ("XTRIM", self._reply_key, "MINID", next_id(self._last)),
                    ("XREAD", "COUNT", _MOST_AT_ONCE, "BLOCK", 1000, "STREAMS", self._reply_key, self._last),
                    timeout_s=1.0 + self.settings.timeout_s,
                )
            except ConnectionLost as error:
                for waiting in self._waiting.values():
                    if not waiting.done():
                        waiting.set_exception(error)
                return
            entries = read_replies(reply)
            for _, fields in entries:
                result = reply_of(fields)
                future = self._waiting.get(result.uri)
                if future is not None and not future.done():
                    future.set_result(result)
            if entries:
                self._last = entries[-1][0]


class AsyncOutputQueue(Api):
    """`OutputQueue` for asyncio; for one event loop."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._prefix = keys.result_prefix(self.name)
        self._link = AsyncLink(self.settings)

    async def query(self, uri: str, delete: bool = False) -> Any:
        """The result of one record; as `OutputQueue.query`."""
        key = self._prefix + uri
        if delete:
            (fields,) = await self._link.run(TAKE, [key], [])
        else:
            (fields,) = await self._link.call(("HGETALL", key))
        return plain_or_failed(result_of(fields, uri)) if fields else "[]"

    async def query_and_delete(self, uri: str) -> Any:
        """The result of one record, taken off."""
        return await self.query(uri, delete=True)

    async def dequeue(self) -> dict[str, Any]:
        """Every result that is there, by uri, taken off."""
        return {result.uri: plain_or_failed(result) async for result in self._take_all()}

    async def results(self, timeout: float = 5) -> AsyncGenerator[Result]:
        """Take results off as they come; as `OutputQueue.results`."""
        loop = asyncio.get_running_loop()
        quiet_since_s, pause_s = loop.time(), 0.005
        while loop.time() - quiet_since_s < timeout:
            any_came = False
            async for result in self._take_all():
                any_came = True
                yield result
            if any_came:
                quiet_since_s, pause_s = loop.time(), 0.005
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.1)

    async def close(self) -> None:
        """Close the connection; a later call opens it again."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _take_all(self) -> AsyncIterator[Result]:
        cursor: bytes | int = 0
        pattern = escape_glob(self._prefix) + "*"
        while True:
            ((cursor, found),) = await self._link.call(
                ("SCAN", cursor, "MATCH", pattern, "COUNT", 1000, "TYPE", "hash")
            )
            taken = await self._link.run(TAKE, found, []) if found else []
            for key, fields in zip(found, taken, strict=True):
                if fields:
                    yield taken_result(key, self._prefix, fields)
            if int(cursor) == 0:
                return


async def _each(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def _cancel(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError, ClusterServingError):
            await task
