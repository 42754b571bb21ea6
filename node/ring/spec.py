"""Settings that every process of a lane gets at its start."""

import msgspec

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.node.ring.slot import Geometry


class LaneSpec(msgspec.Struct, frozen=True):
    """Settings that all processes of a lane share. The file descriptors are inherited.

    `first_worker` is the number of the lane's first worker among the workers of the node.
    """

    job: str
    node: str
    redis: RedisSettings
    geometry: Geometry
    ring_fd: int
    reader_bell: int
    writer_bell: int
    worker_bells: tuple[int, ...]
    first_worker: int = 0
