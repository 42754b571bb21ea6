"""One connection to Redis for raw commands, for asyncio."""

import asyncio
import select
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from cluster_serving.client.aio.master_connection import AsyncMasterConnection, AsyncMasterTlsConnection
from cluster_serving.client.errors import ConnectionLost, Unavailable
from cluster_serving.client.forks import begin_anew_in_child, let_go
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.resp import (
    INCOMPLETE,
    Argument,
    Command,
    Script,
    cannot_serve,
    connection_lost,
    is_unknown_script,
    joined,
    new_reader,
    of_other_loop,
    of_parent,
)
from cluster_serving.client.redis_settings import RedisSettings


class _Socket(asyncio.Protocol):
    """Receiver of one connection: parses input into replies. One call waits at a time."""

    def __init__(self) -> None:
        self._reader = new_reader()
        self._replies: list[Any] = []
        self._wanted = 0
        self._all: asyncio.Future[list[Any]] | None = None
        self._lost: Exception | None = None

    def next(self, count: int) -> asyncio.Future[list[Any]]:
        """Return a future for the next `count` replies, done once all are there."""
        self._wanted = count
        self._all = asyncio.get_running_loop().create_future()
        if self._lost is not None:
            self._all.set_exception(self._lost)
        return self._all

    def data_received(self, data: bytes) -> None:
        """Parse received bytes."""
        reader, replies = self._reader, self._replies
        try:
            reader.feed(data)
            while (reply := reader.gets(False)) is not INCOMPLETE:
                replies.append(reply)
        except redis.exceptions.InvalidResponse as error:
            self.connection_lost(error)
            return
        if len(replies) >= self._wanted and self._all is not None and not self._all.done():
            self._replies = []
            self._all.set_result(replies)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the waiting call."""
        self._lost = exc or ConnectionError("closed by Redis")
        self._fail(self._lost)

    def give_up(self) -> None:
        """Fail the waiting call, because the time for the reply is over."""
        self._fail(TimeoutError("no reply in time"))

    def _fail(self, error: Exception) -> None:
        if self._all is not None and not self._all.done():
            self._all.set_exception(error)


class _Open:
    """One open connection.

    Attributes:
        busy: True while replies are due. Still True at the next call, if a call was cancelled or interrupted.
    """

    __slots__ = ("_news", "busy", "connection", "loop", "protocol", "transport")

    def __init__(self, connection: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.connection = connection
        self.transport = connection._writer.transport  # redis-py has no public way to the transport
        self.protocol = _Socket()
        self.transport.set_protocol(self.protocol)
        self._news = select.poll()
        self._news.register(self.transport.get_extra_info("socket"), select.POLLIN)
        self.busy = False

    @property
    def is_cut(self) -> bool:
        """True once the connection was cut because another Redis has become the master."""
        return getattr(self.connection, "is_cut", False)

    @property
    def is_stale(self) -> bool:
        """True once Redis has closed the connection, which a command would not survive. Only while no reply is due."""
        # Once the event loop has noticed the end, the file descriptor is closed or reused, and a poll tells nothing.
        return self.is_cut or self.transport.is_closing() or bool(self._news.poll(0))


class AsyncLink:
    """`link.Link` for asyncio: one connection, one command or pipeline at a time.

    redis-py connects and logs in. From then on the link reads and writes the transport itself. With redis-py's streams a lone
    call took a fifth longer.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._open: _Open | None = None
        self._is_of_parent = False
        self._lock = asyncio.Lock()
        begin_anew_in_child(self)

    async def call(
        self, *commands: Command, timeout_s: float | None = None, connect_s: float | None = None
    ) -> list[Any]:
        """Send commands in one write and return the replies. An error reply stands in the list as `RedisRefused`.

        Args:
            commands: commands to send.
            timeout_s: seconds that the replies may take. Default: the settings' timeout.
            connect_s: seconds for connecting, if there is no connection. Default and most: the settings' timeout.

        Raises:
            ConnectionLost: Redis cannot be reached, or went away.
        """
        if self._is_of_parent:
            raise of_parent()
        seconds = self._settings.timeout_s if timeout_s is None else timeout_s
        packet, count = joined(commands)
        async with self._lock:
            now = self._open
            if now is not None and now.loop is not asyncio.get_running_loop():
                raise of_other_loop()
            kind: type[ConnectionLost] = Unavailable
            try:
                if now is None or now.busy or now.is_stale:
                    now = await self._connect(connect_s)
                now.busy, kind = True, ConnectionLost
                coming = now.protocol.next(count)
                now.transport.write(packet)
                # `asyncio.timeout` costs a lone call four microseconds more.
                expiry = asyncio.get_running_loop().call_later(seconds, now.protocol.give_up)
                try:
                    replies = await coming
                finally:
                    expiry.cancel()
                now.busy = False
                return replies
            except (redis.RedisError, OSError) as error:
                raise await self._lost(error, kind) from None

    async def call_checked(self, *commands: Command, timeout_s: float | None = None) -> list[Any]:
        """Send commands as `call` does, and raise an error reply once all replies are there.

        Raises:
            ConnectionLost: Redis cannot be reached, cannot serve, or went away.
            RedisRefused: Redis refused a command.
        """
        replies = await self.call(*commands, timeout_s=timeout_s)
        for reply in replies:
            if isinstance(reply, RedisRefused):
                await self.raise_for(reply)
        return replies

    async def raise_for(self, refusal: RedisRefused) -> NoReturn:
        """Raise an error reply, as `Link.raise_for` does."""
        if cannot_serve(refusal):
            raise await self._lost(refusal, Unavailable) from None
        raise refusal

    async def run(self, script: Script, names: Sequence[Argument], arguments: Sequence[Argument]) -> Any:
        """Run a script. Load the script first if Redis does not know it.

        Raises:
            ConnectionLost: Redis cannot be reached, cannot serve, or went away.
            RedisRefused: Redis refused the script.
        """
        try:
            return (await self.call_checked(script.command(names, arguments)))[0]
        except RedisRefused as error:
            if not is_unknown_script(error):
                raise
            return (await self.call_checked(("EVAL", script.text, len(names), *names, *arguments)))[0]

    async def close(self) -> None:
        """Close the connection, if there is one. A call under way gets `ConnectionLost`."""
        if self._open is not None:
            self._open.protocol.connection_lost(ConnectionError("closed by this program"))
        await self._drop()

    @property
    def connected(self) -> bool:
        """True while there is a connection."""
        return self._open is not None

    @property
    def is_stale(self) -> bool:
        """True if there is a connection that Redis has closed. Only while no call is under way."""
        return self._open is not None and self._open.is_stale

    def after_fork(self) -> None:
        """Leave the connection to the parent."""
        self._is_of_parent = True
        last, self._open = self._open, None
        if last is not None and not last.transport.is_closing():
            let_go(last.transport.get_extra_info("socket").fileno())

    async def _connect(self, within_s: float | None) -> _Open:
        await self._drop()
        settings = self._settings
        kind: type[Any] = redis.asyncio.SSLConnection if settings.tls else redis.asyncio.Connection
        if settings.unix_path:
            kind = redis.asyncio.UnixDomainSocketConnection
        elif settings.sentinels:
            kind = AsyncMasterTlsConnection if settings.tls else AsyncMasterConnection
        connection = kind(**settings.options() | {"retry": Retry(NoBackoff(), 0)})
        try:
            async with asyncio.timeout(min(settings.timeout_s, settings.timeout_s if within_s is None else within_s)):
                await connection.connect()
                await connection.send_command("PING")  # as `Link` does
                with suppress(redis.exceptions.NoPermissionError):
                    await connection.read_response()
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, TimeoutError):
                raise redis.TimeoutError(f"not connected to {settings.describe()} in time") from error
            raise
        self._open = now = _Open(connection)
        return now

    async def _lost(self, error: Exception, kind: type[ConnectionLost]) -> ConnectionLost:
        is_cut = self._open is not None and self._open.is_cut
        await self._drop()
        return connection_lost(self._settings, error, kind, is_cut=is_cut)

    async def _drop(self) -> None:
        last, self._open = self._open, None
        if last is not None:
            last.transport.abort()  # the end of TLS would wait for Redis, and the event loop may have ended by then
            await last.connection.disconnect(nowait=True)
