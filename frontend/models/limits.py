"""Limits of requests per second, for the whole frontend and for single models. Each process lets its share through."""

import asyncio
import math
from time import monotonic

from cluster_serving.frontend.config.servables import Servable
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.http.errors import Limited
from cluster_serving.frontend.metrics.timers import Count, WorkerTimers
from cluster_serving.frontend.models.token_bucket import TokenBucket


def bucket_of(limited: FrontendConfig | Servable, config: FrontendConfig) -> TokenBucket | None:
    """Return the token bucket of one process for the frontend or a model, or None without a limit."""
    if not limited.token_bucket_enabled:
        return None
    return TokenBucket(limited.tokens_per_second / config.workers, config.token_acquire_timeout / 1000)


async def take_token(bucket: TokenBucket, timers: WorkerTimers) -> None:
    """Wait for a token.

    Raises:
        Limited: no token is available soon enough.
    """
    wait_s = bucket.wait_s(monotonic())
    if wait_s is None:
        timers.count(Count.LIMITED)
        raise Limited("limited", math.ceil(bucket.interval_s))
    if wait_s > 0:
        await asyncio.sleep(wait_s)
