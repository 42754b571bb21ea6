"""One connection to Redis for raw commands, for asyncio."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from cluster_serving.client.connection import Argument, RedisSettings, Script, pack
from cluster_serving.client.errors import ConnectionLost


class AsyncLink:
    """`connection.Link` for asyncio: one connection, one command or pipeline at a time."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._pool = _client(settings).connection_pool
        self._connection: Any = None
        self._lock = asyncio.Lock()

    async def call(self, *commands: tuple[Argument, ...], timeout_s: float | None = None) -> list[Any]:
        """Send commands in one write and read their replies; an error reply stands in the list.

        Raises:
            ConnectionLost: Redis cannot be reached, or went away.
        """
        async with self._lock:
            try:
                if self._connection is None:
                    self._connection = await self._pool.get_connection()
                await self._connection.send_packed_command([b"".join(map(pack, commands))], check_health=False)
                return [await self._read(timeout_s) for _ in commands]
            except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
                await self._drop()
                raise ConnectionLost(f"Redis at {self._settings.describe()}: {error}") from error
            except asyncio.CancelledError:
                await self._drop()  # a reply is still to come, which the next command would take for its own
                raise

    async def run(self, script: Script, names: Sequence[Argument], arguments: Sequence[Argument]) -> Any:
        """Run a script, and load it first where Redis does not know it.

        Raises:
            ConnectionLost: Redis cannot be reached, or went away.
            redis.ResponseError: Redis refused it.
        """
        (reply,) = await self.call(script.command(names, arguments))
        if isinstance(reply, redis.exceptions.NoScriptError):
            (reply,) = await self.call(("EVAL", script.text, len(names), *names, *arguments))
        if isinstance(reply, redis.exceptions.ResponseError):
            raise reply
        return reply

    async def close(self) -> None:
        """Close the connection, if there is one."""
        await self._drop()
        await self._pool.disconnect()

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None

    async def _read(self, timeout_s: float | None) -> Any:
        seconds = self._settings.timeout_s if timeout_s is None else timeout_s
        try:
            return await self._connection.read_response(disable_decoding=True, timeout=seconds)
        except redis.exceptions.ResponseError as error:
            return error

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)


def _client(settings: RedisSettings) -> Any:
    options: dict[str, Any] = settings.options() | {"retry": Retry(NoBackoff(), 0)}
    if settings.sentinels:
        sentinel = cast(Any, Sentinel)(list(settings.sentinels), **options)
        return sentinel.master_for(settings.service)
    if settings.unix_path:
        return redis.asyncio.Redis(unix_socket_path=settings.unix_path, **options)
    return redis.asyncio.Redis(host=settings.host, port=settings.port, **options)
