"""Calls for the items of a source, begun while there is room for them and while the answers to earlier ones come."""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from cluster_serving.client.aio.tasks import cancel

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_SLOW_S = 0.005


class NothingCame(Exception):
    """No call was done in time."""


class Feed(Generic[Answer]):
    """Tasks of calls, one for each item of a source. A task of its own reads the source while there is room.

    Args:
        items: the source. While a source that is not asynchronous makes an item, nothing else runs.
        call: begins the call for an item.
        window: number of calls under way at once, with those whose answers nobody has taken.
    """

    def __init__(
        self,
        items: Iterable[Item] | AsyncIterable[Item],
        call: Callable[[Item], Coroutine[Any, Any, Answer]],
        window: int,
    ) -> None:
        self._window = max(1, window)
        self._calls: dict[asyncio.Task[Answer], None] = {}
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._reading = asyncio.create_task(self._read(items, call))
        self._reading.add_done_callback(lambda _: self._changed.set())

    async def next(self) -> asyncio.Task[Answer] | None:
        """Wait for the oldest call, and return it. Return None after the last. An error of the source is raised."""
        while (oldest := next(iter(self._calls), None)) is None or not oldest.done():
            if self._is_over():
                return None
            if oldest is None:
                self._changed.clear()
                await self._changed.wait()
            else:
                reading = () if self._reading.done() else (self._reading,)
                await asyncio.wait([oldest, *reading], return_when=asyncio.FIRST_COMPLETED)
        self._take(oldest)
        return oldest

    async def close(self) -> None:
        """End the reading of the source, and the calls under way."""
        await cancel([self._reading, *self._calls])

    def _is_over(self) -> bool:
        """Return whether no item and no call is left. Raise the error of the source."""
        if not self._reading.done():
            return False
        self._reading.result()
        return not self._calls

    def _take(self, call: asyncio.Task[Answer]) -> None:
        del self._calls[call]
        self._room.set()

    def _begun(self, call: asyncio.Task[Answer]) -> None:
        self._calls[call] = None
        self._changed.set()

    async def _read(
        self, items: Iterable[Item] | AsyncIterable[Item], call: Callable[[Item], Coroutine[Any, Any, Answer]]
    ) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        async for item in each(items):
            self._begun(asyncio.create_task(call(item)))
            took_s = loop.time() - begun_s
            if took_s > _SLOW_S:
                await asyncio.sleep(min(took_s / 20, _SLOW_S))
                begun_s = loop.time()
            while len(self._calls) >= self._window:
                self._room.clear()
                await self._room.wait()
                begun_s = loop.time()


class UnorderedFeed(Feed[Answer]):
    """`Feed` that returns calls in the order in which they are done.

    Args:
        timeout: seconds to wait for a call.
    """

    def __init__(
        self,
        items: Iterable[Item] | AsyncIterable[Item],
        call: Callable[[Item], Coroutine[Any, Any, Answer]],
        window: int,
        timeout: float,
    ) -> None:
        super().__init__(items, call, window)
        self._timeout = timeout
        self._done: deque[asyncio.Task[Answer]] = deque()

    async def next(self) -> asyncio.Task[Answer] | None:
        """Wait for a call that is done, and return it. Return None after the last. An error of the source is raised.

        Raises:
            NothingCame: no call was done and the source gave nothing for `timeout` seconds, with calls under way.
        """
        while not self._done:
            if self._is_over():
                return None
            self._changed.clear()
            try:
                async with asyncio.timeout(self._timeout if self._calls else None):
                    await self._changed.wait()
            except TimeoutError:
                if not self._changed.is_set():
                    raise NothingCame from None
        done = self._done.popleft()
        self._take(done)
        return done

    def _begun(self, call: asyncio.Task[Answer]) -> None:
        super()._begun(call)
        call.add_done_callback(self._note)

    def _note(self, call: asyncio.Task[Answer]) -> None:
        self._done.append(call)
        self._changed.set()


async def each(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterator[Item]:
    """Yield the items of a source of either kind."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
