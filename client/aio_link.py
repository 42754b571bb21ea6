"""One connection to Redis for raw commands, for asyncio."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, cast

import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from cluster_serving.client.connection import RedisSettings
from cluster_serving.client.link import Argument, Script, connection_lost, pack


class AsyncLink:
    """`link.Link` for asyncio: one connection, one command or pipeline at a time."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._pool, self._sentinels = _pool_of(settings)
        self._connection: Any = None
        self._lock = asyncio.Lock()

    async def call(self, *commands: tuple[Argument, ...], timeout_s: float | None = None) -> list[Any]:
        """Send commands in one write and read their replies; an error reply stands in the list.

        Raises:
            ConnectionLost: Redis cannot be reached, or went away.
        """
        seconds = self._settings.timeout_s if timeout_s is None else timeout_s
        async with self._lock:
            try:
                if self._connection is None:
                    self._connection = await self._pool.get_connection()
                connection = self._connection  # `close` may take it away in the meantime
                await connection.send_packed_command([b"".join(map(pack, commands))], check_health=False)
                return [await _read(connection, seconds) for _ in commands]
            except (redis.RedisError, OSError) as error:
                await self._drop()
                raise connection_lost(self._settings, error) from error
            except BaseException:
                await self._drop()  # replies are still to come, which the next command would take for its own
                raise

    async def call_checked(self, *commands: tuple[Argument, ...], timeout_s: float | None = None) -> list[Any]:
        """The same, where an error reply is raised once all replies are there.

        Raises:
            ConnectionLost: Redis cannot be reached, or went away.
            redis.ResponseError: Redis refused a command.
        """
        replies = await self.call(*commands, timeout_s=timeout_s)
        for reply in replies:
            if isinstance(reply, redis.ResponseError):
                raise reply
        return replies

    async def run(self, script: Script, names: Sequence[Argument], arguments: Sequence[Argument]) -> Any:
        """Run a script, and load it first where Redis does not know it.

        Raises:
            ConnectionLost: Redis cannot be reached, or went away.
            redis.ResponseError: Redis refused it.
        """
        (reply,) = await self.call(script.command(names, arguments))
        if isinstance(reply, redis.exceptions.NoScriptError):
            (reply,) = await self.call_checked(("EVAL", script.text, len(names), *names, *arguments))
        if isinstance(reply, redis.ResponseError):
            raise reply
        return reply

    async def close(self) -> None:
        """Close the connection, if there is one."""
        await self._drop()
        await self._pool.disconnect()
        for sentinel in self._sentinels:
            await sentinel.aclose()

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)


async def _read(connection: Any, timeout_s: float) -> Any:
    """The next reply. Not by redis-py's own timeout, which gives None and keeps a connection that still owes a reply."""
    try:
        async with asyncio.timeout(timeout_s):
            return await connection.read_response(disable_decoding=True, timeout=math.inf)
    except redis.ResponseError as error:
        return error


def _pool_of(settings: RedisSettings) -> tuple[Any, Sequence[redis.asyncio.Redis]]:
    """Where connections come from, and the clients that ask the Sentinels for it."""
    options: dict[str, Any] = settings.options() | {"retry": Retry(NoBackoff(), 0)}
    if settings.sentinels:
        sentinel = cast(Any, Sentinel)(list(settings.sentinels), **options)
        return sentinel.master_for(settings.service).connection_pool, sentinel.sentinels
    if settings.unix_path:
        return redis.asyncio.Redis(unix_socket_path=settings.unix_path, **options).connection_pool, ()
    return redis.asyncio.Redis(host=settings.host, port=settings.port, **options).connection_pool, ()
