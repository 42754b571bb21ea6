"""One look at Redis at the start of a frontend: a Redis Cluster is refused, because a frontend serves jobs of all its slots."""

from contextlib import suppress
from typing import Any

import redis

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault


class RedisIsCluster(Fault):
    """Redis runs in cluster mode."""

    exit_code = ExitCode.REDIS


def check_redis(settings: RedisSettings) -> None:
    """Check that Redis is no cluster. A Redis that is away, or does not answer the question, is no fault: Redis may come later.

    Raises:
        RedisIsCluster: Redis runs in cluster mode.
    """
    info: Any = {}
    with suppress(redis.RedisError, OSError), settings.client() as client:
        info = client.info("cluster")
    if int(info.get("cluster_enabled", 0)):
        raise RedisIsCluster(
            f"Redis at {settings.describe()} is a Redis Cluster, and the keys of a job need one server: set redisUrl to a Redis "
            "without cluster mode, or to Sentinels (redis+sentinel://...)"
        )
