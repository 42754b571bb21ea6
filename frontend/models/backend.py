"""One Redis: the jobs of its nodes, and the calls to each job."""

from collections.abc import Mapping

from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.protocol.durability import check_durability
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.compression import Codec
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.metrics.timers import WorkerTimers
from cluster_serving.frontend.models.calls import Calls
from cluster_serving.frontend.models.later.later import Later
from cluster_serving.frontend.models.registry import Registry


class Backend:
    """Jobs of one Redis, as one process of a frontend calls them.

    Args:
        settings: settings of the Redis.
        config: settings of the frontend.
        timers: timers of this process.

    Attributes:
        registry: jobs with a live node.
        link: connection that sends records, and takes other commands that do not block.
        later: calls that are answered later.
    """

    def __init__(self, settings: RedisSettings, config: FrontendConfig, timers: WorkerTimers) -> None:
        self.registry = Registry(settings)
        self.later = Later(settings, config)
        self._settings = settings
        durability = None if config.later_durability == "none" else config.later_durability
        self._copies = check_durability(durability, settings)
        self._codec: Codec | None = None if config.compress == "none" else config.compress
        self._timers = timers
        self.link = AsyncLink(settings)
        self._calls: dict[str, Calls] = {}

    def calls(self, job: str, window_s: float, window_calls: int) -> Calls:
        """Return the calls to a job. The first request for a job sets the windows, which are described at `Calls`."""
        if job not in self._calls:
            self._calls[job] = Calls(
                self._settings, self.link, job, self._timers, window_s, window_calls, self._copies, self._codec
            )
        return self._calls[job]

    async def save(self, key: str, values: Mapping[str, str]) -> None:
        """Put fields into a hash.

        Raises:
            ConnectionLost: Redis cannot be reached.
            RedisRefused: the hash may not be written.
        """
        await self.link.call_checked(("HSET", key, *(part for pair in values.items() for part in pair)))

    async def close(self) -> None:
        """Close every connection."""
        await self.registry.close()
        await self.later.close()
        for calls in self._calls.values():
            await calls.close()
        await self.link.close()
