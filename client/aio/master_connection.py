"""`sentinels.MasterConnection` for asyncio."""

import asyncio
from contextlib import suppress
from typing import Any, cast

from redis.asyncio.connection import Connection, SSLConnection

from cluster_serving.client.sentinels.master import Sentinels
from cluster_serving.client.sentinels.settings import SentinelSettings


class AsyncMasterConnection(Connection):
    """redis-py connection to the master that the Sentinels name.

    Attributes:
        is_cut: True once the connection was cut because another Redis has become the master.
    """

    def __init__(self, sentinels: SentinelSettings, **options: Any) -> None:
        super().__init__(**options)
        self._settings = sentinels
        self._loop = asyncio.get_running_loop()
        self.is_cut = False

    def cut(self) -> None:
        """Close the transport in its event loop. See `sentinels.Connection`."""
        self.is_cut = True
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    async def _connect(self) -> None:
        sentinels = Sentinels.of(self._settings)
        self.host, self.port = await asyncio.to_thread(sentinels.master)
        self.is_cut = False
        await cast(Any, super())._connect()
        sentinels.watch(self)


class AsyncMasterTlsConnection(AsyncMasterConnection, SSLConnection):
    """`AsyncMasterConnection` with TLS."""
