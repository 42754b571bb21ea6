"""One connection to Redis whose concurrent calls leave together."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from cluster_serving.client.aio.admission import fail
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.resp import Command, abandoned
from cluster_serving.client.redis_settings import RedisSettings

_AT_ONCE = 64


class _Call(NamedTuple):
    commands: Sequence[Command]
    replies: asyncio.Future[list[Any]]


class Together:
    """Connection for calls of many requests. While a call is under way, further calls gather, and share the next trip.

    Args:
        settings: settings of the Redis.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self._link = AsyncLink(settings)
        self._unsent: list[_Call] = []
        self._sender: asyncio.Task[None] | None = None

    async def call(self, *commands: Command) -> list[Any]:
        """Send commands and return the replies, as `AsyncLink.call` does.

        Raises:
            ConnectionLost: Redis cannot be reached, or went away.
        """
        call = _Call(commands, asyncio.get_running_loop().create_future())
        self._unsent.append(call)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        return await call.replies

    async def call_checked(self, *commands: Command) -> list[Any]:
        """Send commands as `call` does, and raise the first error reply.

        Raises:
            ConnectionLost: Redis cannot be reached, cannot serve, or went away.
            RedisRefused: Redis refused a command.
        """
        replies = await self.call(*commands)
        await self.check(replies)
        return replies

    async def check(self, replies: Sequence[Any]) -> None:
        """Raise the first error among replies, as `call_checked` does."""
        for reply in replies:
            if isinstance(reply, RedisRefused):
                await self._link.raise_for(reply)

    async def close(self) -> None:
        """End the calls under way with `ConnectionLost`, and close the connection."""
        unsent, self._unsent = self._unsent, []
        for call in unsent:
            fail(call.replies, abandoned())
        await self._link.close()

    async def _send(self) -> None:
        while self._unsent:
            calls, self._unsent = self._unsent[:_AT_ONCE], self._unsent[_AT_ONCE:]
            try:
                replies = await self._link.call(*(command for call in calls for command in call.commands))
            except Exception as error:
                for call in calls:
                    fail(call.replies, error)
                continue
            for call in calls:
                own, replies = replies[: len(call.commands)], replies[len(call.commands) :]
                if not call.replies.done():
                    call.replies.set_result(own)
