"""Releases of the nodes that serve a job on one Redis."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
import redis

from cluster_serving.client import keys
from cluster_serving.client.wire.heartbeat import Release


def other_releases(client: redis.Redis, job: str) -> list[Release]:
    """Return the live nodes of a job that are not of this release. Empty if the user may not ask.

    Raises:
        redis.RedisError: Redis cannot be reached.
    """
    return of_other_releases(heartbeats(client, job))


def of_other_releases(beats: Iterable[bytes]) -> list[Release]:
    """Return the nodes with these heartbeats that are not of this release."""
    found: list[Release] = []
    for beat in beats:
        with suppress(msgspec.MsgspecError):
            found.append(Release.read(beat))
    return [node for node in found if not node.is_own]


def heartbeats(client: redis.Redis, job: str) -> list[bytes]:
    """Return the heartbeats of the live nodes of a job, of any release. Empty if the user may not ask.

    Raises:
        redis.RedisError: Redis cannot be reached.
    """
    with suppress(redis.ResponseError):
        listed: Any = client.zrange(keys.NODES, 0, -1)
        of_job = [key for key in listed if key.startswith(keys.node_key(job, "").encode())]
        beats: Any = client.mget(of_job) if of_job else []
        return [beat for beat in beats if beat]
    return []
