"""Output queue for asyncio: takes results off the queue."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Literal, Self

from cluster_serving.client import keys
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.api import Api, seconds
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.results import (
    DELETE,
    READ_AT_ONCE,
    Answer,
    Failed,
    Found,
    deletion,
    escape_glob,
    found_result,
    plain_or_failed,
    result_of,
)
from cluster_serving.client.tracebacks import short_tracebacks
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.values import encode_uri


class AsyncOutputQueue(Api):
    """`OutputQueue` for asyncio. For one event loop.

    Args:
        settings: host, port, name, ...: see `ConnectionSettings`.
    """

    def _begin(self) -> None:
        super()._begin()
        self._prefix = keys.result_prefix(self.name)
        self._link = AsyncLink(self.settings)
        self._undelivered: list[Result] = []  # results that a cancelled call had taken

    @short_tracebacks
    async def query(self, uri: str, delete: bool = False) -> Answer | Failed | Literal["[]"]:
        """Return the result of one record, as `OutputQueue.query` does."""
        key = self._prefix.encode() + encode_uri(uri)
        (fields,) = await self._link.call_checked(("HGETALL", key))
        if delete and fields and not await self._take([(key, fields)]):
            return "[]"  # another reader was quicker
        return plain_or_failed(result_of(fields, uri)) if fields else "[]"

    @short_tracebacks
    async def query_and_delete(self, uri: str) -> Answer | Failed | Literal["[]"]:
        """Return the result of one record, and take the result off the queue."""
        return await self.query(uri, delete=True)

    @short_tracebacks
    async def dequeue(self) -> dict[str, Answer | Failed]:
        """Take all available results off the queue and return them by uri, as `OutputQueue.dequeue` does."""
        taken, self._undelivered = self._undelivered, []
        try:
            try:
                async for names in self._pages():
                    taken += await self._take(await self._read(names))
            except ConnectionLost:
                if not taken:
                    raise
                # The results taken so far exist only here, as in `OutputQueue`.
            return {result.uri: plain_or_failed(result) for result in taken}
        except BaseException:
            self._undelivered += taken
            raise

    @short_tracebacks
    async def results(self, timeout: float = 5) -> AsyncGenerator[Result]:
        """Take results off the queue as they come, as `OutputQueue.results` does."""
        timeout = seconds("timeout", timeout)
        loop = asyncio.get_running_loop()
        quiet_since_s, pause_s = loop.time(), 0.005
        while True:
            any_came = False
            while self._undelivered:
                any_came = True
                yield self._undelivered.pop()
            async for names in self._pages():
                for start in range(0, len(names), READ_AT_ONCE):
                    for found in await self._read(names[start : start + READ_AT_ONCE]):
                        for result in await self._take([found]):
                            any_came = True
                            yield result
            if any_came:
                quiet_since_s, pause_s = loop.time(), 0.005
            if loop.time() - quiet_since_s >= timeout:
                return
            if not any_came:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.1)

    async def close(self) -> None:
        """Close the connection. The waiting calls get `ConnectionLost`. A later call connects again."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _pages(self) -> AsyncIterator[list[bytes]]:
        """Yield the keys of the results in Redis, about 1000 at a time."""
        cursor: bytes | int = 0
        pattern = escape_glob(self._prefix) + "*"
        while True:
            ((cursor, found),) = await self._link.call_checked(
                ("SCAN", cursor, "MATCH", pattern, "COUNT", 1000, "TYPE", "hash")
            )
            if found:
                yield found
            if int(cursor) == 0:
                return

    async def _read(self, names: Sequence[bytes]) -> list[Found]:
        """Return the results with these keys. Results that another reader has taken meanwhile are left out."""
        replies = await self._link.call_checked(*(("HGETALL", name) for name in names))
        return [(name, fields) for name, fields in zip(names, replies, strict=True) if fields]

    async def _take(self, found: Sequence[Found]) -> list[Result]:
        """Take results off the queue that were read, as `OutputQueue` does."""
        results = [found_result(key, self._prefix, fields) for key, fields in found]
        try:
            deleted = await self._link.run(DELETE, *deletion(found))
        except RedisRefused:
            raise
        except ConnectionLost as error:
            if error.unsent:
                raise
            return results
        except BaseException:
            self._undelivered += results
            raise
        return [result for result, is_mine in zip(results, deleted, strict=True) if is_mine]
