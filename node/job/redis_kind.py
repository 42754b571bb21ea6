"""Kinds of Redis that cannot serve a job, told by INFO: a cluster, and a Redis that throws keys away when its memory is full.

maxmemory-policy (with maxmemory)   thrown away                                            a node
──────────────────────────────────  ─────────────────────────────────────────────────────  ──────────────────────────────
noeviction                          nothing: writes are refused, and clients wait          serves
volatile-*                          keys with a time to live: results nobody has read yet  warns
allkeys-*                           any key: accepted records too                          refuses, unless `allowEviction`
"""

from collections.abc import Mapping
from typing import Any

from cluster_serving.node.job.redis_errors import RedisUnavailable


def eviction(info: Mapping[str, Any]) -> str:
    """Return a sentence on the keys that Redis throws away when its memory is full, or an empty text if there are none.

    Args:
        info: answer to INFO memory.
    """
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction" or not int(info.get("maxmemory", 0)):
        return ""
    lost = "accepted records" if policy.startswith("allkeys") else "results that nobody has read yet"
    return f"it throws away {lost} when its memory is full (maxmemory-policy {policy}): set maxmemory-policy noeviction"


def counted_memory(info: Mapping[str, Any]) -> int:
    """Return the bytes that Redis compares with its maxmemory: all but buffers of replicas and of the append-only file.

    Args:
        info: answer to INFO memory.
    """
    return int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0))


def check_kind(info: Mapping[str, Any], where: str, *, allow_eviction: bool) -> None:
    """Check that a Redis is no cluster, and keeps accepted records.

    Args:
        info: answers to INFO cluster and INFO memory.
        where: Redis and its address, for the message.
        allow_eviction: accept a Redis that throws records away.

    Raises:
        RedisUnavailable: the Redis cannot serve a job.
    """
    if int(info.get("cluster_enabled", 0)):
        raise RedisUnavailable(
            f"{where} is a Redis Cluster, and the keys of a job need one server: set redisUrl to a Redis without cluster mode, or "
            "to Sentinels (redis+sentinel://...)"
        )
    lost = eviction(info)
    if lost and str(info["maxmemory_policy"]).startswith("allkeys") and not allow_eviction:
        raise RedisUnavailable(f"{where} cannot be used: {lost}, or allowEviction in config.yaml")
