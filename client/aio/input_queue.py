"""Input queue for asyncio: puts records on the queue, and waits for results if wanted.

Concurrent calls share everything: one call of Redis sends all records that have gathered while the last call was under way, and
one blocking read of the reply stream serves all waiting calls.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine, Iterable, Mapping
from itertools import count
from typing import Any, Never, Self, Unpack

from cluster_serving.client import keys
from cluster_serving.client.aio.admission import AsyncAdmission
from cluster_serving.client.aio.feed import Feed, NothingCame, UnorderedFeed, each
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.aio.packing import AsyncPacking
from cluster_serving.client.aio.replies import AsyncReplies
from cluster_serving.client.api import Api, ConnectionSettings, seconds, window_of
from cluster_serving.client.errors import InvalidValue, RecordFailed
from cluster_serving.client.protocol.absence import Inquiry
from cluster_serving.client.protocol.admission import CHUNK
from cluster_serving.client.protocol.durability import Durability, check_durability
from cluster_serving.client.protocol.payload import check_codec
from cluster_serving.client.protocol.requests import (
    Dialect,
    Fields,
    Request,
    as_inputs,
    check_dialect,
    native_fields,
    request_fields,
)
from cluster_serving.client.protocol.results import WINDOW, Answer, answer_to_request, begun_in_time, plain
from cluster_serving.client.tracebacks import short_tracebacks
from cluster_serving.client.wire.compression import Codec
from cluster_serving.client.wire.original.encode import encode_record as encode_original
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.values import Value


class AsyncInputQueue(Api):
    """`InputQueue` for asyncio. For one event loop.

    Args:
        dialect: `native`, or `original` for `enqueue` like the original's clients. `predict` needs `native`.
        patience_s: as in `InputQueue`.
        deadline_s: as in `InputQueue`.
        compress: as in `InputQueue`.
        durability: as in `InputQueue`.
        settings: host, port, name, ...: see `ConnectionSettings`.

    Raises:
        ConnectionLost: from every method that talks to Redis.
        RedisRefused: from every method that talks to Redis, if Redis answers with an error.
    """

    def __init__(
        self,
        *address: Never,
        dialect: Dialect = "native",
        patience_s: float = 10.0,
        deadline_s: float | None = None,
        compress: Codec | None = None,
        durability: Durability | None = None,
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        self._dialect: Dialect = check_dialect(dialect)
        self._patience_s = seconds("patience_s", patience_s)
        self._life_s = math.inf if deadline_s is None else seconds("deadline_s", deadline_s)
        self._codec: Codec | None = check_codec(compress, self._dialect)
        self._durability: Durability | None = durability
        super().__init__(*address, **settings)

    def _begin(self) -> None:
        super()._begin()
        self._inquiry = Inquiry(self.name, self.settings.describe())
        self._sending = AsyncLink(self.settings)
        self._packing = AsyncPacking(self._sending, self.name, self._codec) if self._codec else None
        copies = check_durability(self._durability, self.settings)
        self._admission = AsyncAdmission(self._sending, self.name, self._patience_s, copies=copies)
        self._replies = self._replies_for(self._client_id)
        self._completing: set[AsyncReplies] = set()
        self._numbers = count()

    @short_tracebacks
    async def enqueue(self, uri: str, **data: Value) -> str:
        """Put one record on the queue, as `InputQueue.enqueue` does."""
        fields = await self._packed(request_fields(self._dialect, uri, data), self._life_s)
        (entry_id,) = await self._admission.put([fields], self._life_s, durable=True)
        return entry_id.decode()

    @short_tracebacks
    async def enqueue_many(
        self, records: Iterable[tuple[str, Mapping[str, Value]]] | AsyncIterable[tuple[str, Mapping[str, Value]]]
    ) -> int:
        """Put records on the queue, 64 at a time, and return the number of records, as `InputQueue.enqueue_many` does."""
        accepted = 0
        chunk: list[Fields] = []
        async for uri, data in each(records):
            chunk.append(await self._packed(request_fields(self._dialect, uri, data), self._life_s))
            if len(chunk) == CHUNK:
                accepted += len(await self._admission.put(chunk, self._life_s, accepted, durable=True))
                chunk = []
        return accepted + (len(await self._admission.put(chunk, self._life_s, accepted, durable=True)) if chunk else 0)

    @short_tracebacks
    def data_to_b64(self, **data: Value) -> str:
        """Return the inputs in the original dialect, as `InputQueue.data_to_b64` does."""
        return encode_original(data)

    @short_tracebacks
    async def predict(self, request: Request, timeout: float = 5) -> Answer:
        """Send one record and wait for its result, as `InputQueue.predict` does."""
        result = await self._answer(request, seconds("timeout", timeout))
        result.uri = ""  # the caller has never seen the generated name
        return plain(begun_in_time(result))

    @short_tracebacks
    async def predict_many(
        self, requests: Iterable[Request] | AsyncIterable[Request], timeout: float = 60, window: int = WINDOW
    ) -> AsyncGenerator[Answer | RecordFailed]:
        """Send records and yield the results in the same order, as `InputQueue.predict_many` does."""
        timeout, window = seconds("timeout", timeout), window_of(window)
        feed = Feed(requests, lambda request: self._answer(request, timeout), window)
        received = count()
        try:
            while (done := await feed.next()) is not None:
                yield answer_to_request(done.result(), next(received))
        finally:
            await feed.close()

    @short_tracebacks
    async def as_completed(
        self,
        records: Iterable[tuple[str, Mapping[str, Value]]] | AsyncIterable[tuple[str, Mapping[str, Value]]],
        timeout: float = 60,
        window: int = WINDOW,
    ) -> AsyncGenerator[Result]:
        """Send records and yield the results as they come, as `InputQueue.as_completed` does."""
        timeout, window = seconds("timeout", timeout), window_of(window)
        # With a stream of its own, because the uris of an earlier call may be the same.
        replies = self._replies_for(f"{self._client_id}-{next(self._numbers)}")
        self._completing.add(replies)

        def call(record: tuple[str, Mapping[str, Value]]) -> Coroutine[Any, Any, Result]:
            uri, data = record
            return self._result(uri, data, timeout, self._life_s, replies)

        feed = UnorderedFeed(records, call, window, timeout)
        try:
            while (done := await feed.next()) is not None:
                yield done.result()
        except NothingCame as error:
            raise await replies.no_result(f"in {timeout} s", self._inquiry) from error
        finally:
            await feed.close()
            await replies.close()
            self._completing.remove(replies)

    async def close(self) -> None:
        """Close the connections. The waiting calls get `ConnectionLost`. A later call connects again."""
        for replies in self._replies, *self._completing:
            replies.abandon()
        await self._admission.close()
        await self._replies.close()
        await self._sending.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _replies_for(self, client: str) -> AsyncReplies:
        key = keys.reply_key(self.name, client)
        return AsyncReplies(self.settings, key, self._sending, inquiry=self._inquiry)

    async def _answer(self, request: Request, timeout: float) -> Result:
        uri = f"{self._uris}-{next(self._numbers)}"
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await self._result(uri, request, timeout, timeout, self._replies)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise await self._replies.no_result(f"of {uri!r} in {timeout} s", self._inquiry) from error

    async def _result(self, uri: str, request: Request, timeout: float, life_s: float, replies: AsyncReplies) -> Result:
        if self._dialect == "original":
            raise InvalidValue(
                "predict needs the native dialect: results of the original are read with AsyncOutputQueue"
            )
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        fields = [*await self._packed(native_fields(uri, as_inputs(request)), timeout), *replies.reply]
        future = replies.expect(uri)
        try:
            await replies.have_stream(min(self._patience_s, timeout))
            (entry,) = await self._admission.put([fields], life_s - (loop.time() - begun_s))
            replies.enqueued(uri, entry)
            return await future
        finally:
            replies.forget(uri)

    async def _packed(self, fields: Fields, within_s: float) -> Fields:
        """Return the fields of a record as they are sent."""
        if self._packing is None:
            return fields
        if self._packing.is_due:
            await self._packing.ask(min(within_s, self.settings.timeout_s), min(within_s, self._patience_s))
        [packed] = self._packing.packed([fields])
        return packed
