"""Releases of the nodes that serve a job on one Redis."""

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
    found: list[Release] = []
    with suppress(redis.ResponseError):
        listed: Any = client.zrange(keys.NODES, 0, -1)
        for key in listed:
            if key.startswith(keys.node_key(job, "").encode()):
                beat: Any = client.get(key)
                with suppress(msgspec.MsgspecError):
                    found.append(Release.read(beat or b""))
    return [node for node in found if not node.is_own]
