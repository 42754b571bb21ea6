"""Waits for results that are fetched later. One loop a process asks Redis for all of them."""

import asyncio
from contextlib import suppress

from cluster_serving.client import keys
from cluster_serving.client.aio.tasks import cancel
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.frontend.models.later.together import Together

_LOOK_S = 0.05
_LOOK_EACH_S = 5e-5
"""Pause for each call that is waited for: at most 20,000 calls are asked for in a second."""
_AT_ONCE = 1000


class Watch:
    """Waits of one process for calls of one Redis.

    Args:
        link: connection to the Redis.
    """

    def __init__(self, link: Together) -> None:
        self._link = link
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._ended = False

    async def wait(self, key: str, timeout_s: float) -> None:
        """Return once the call of a key has all its results or is gone, or the time is over, or `end` was called."""
        if self._ended:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(future)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await future
        finally:
            futures = self._waiting.get(key, set())
            futures.discard(future)
            if not futures:
                self._waiting.pop(key, None)

    def end(self) -> None:
        """End all waits, and those to come: this process is to stop."""
        self._ended = True
        self._wake(list(self._waiting))

    async def close(self) -> None:
        """End the loop. The connection stays open."""
        if self._looking is not None:
            await cancel([self._looking])

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(_LOOK_S + _LOOK_EACH_S * len(self._waiting))
            names = list(self._waiting)
            with suppress(ConnectionLost):  # Redis comes back, or the waits end by themselves
                for first in range(0, len(names), _AT_ONCE):
                    asked = names[first : first + _AT_ONCE]
                    left = await self._link.call(*(("HGET", name, keys.LEFT) for name in asked))
                    self._wake([name for name, number in zip(asked, left, strict=True) if number in (None, b"0")])

    def _wake(self, names: list[str]) -> None:
        for name in names:
            for future in self._waiting.get(name, ()):
                if not future.done():
                    future.set_result(None)
