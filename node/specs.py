"""What the supervisor tells a child on its standard input, and the child answers on its ready pipe."""

from typing import Any

import msgspec

from cluster_serving.client.connection import RedisSettings
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.slot import Geometry


class LaneSpec(msgspec.Struct, frozen=True):
    """What all processes of a lane share; the numbers are inherited descriptors."""

    job: str
    node: str
    redis: RedisSettings
    geometry: Geometry
    ring_fd: int
    reader_bell: int
    writer_bell: int
    worker_bells: tuple[int, ...]


class ReaderSpec(msgspec.Struct, frozen=True):
    """For the reader."""

    lane: LaneSpec
    consumer: str
    inputs: tuple[TensorSpec, ...]
    max_batch_delay_ms: float


class WriterSpec(msgspec.Struct, frozen=True):
    """For the writer."""

    lane: LaneSpec
    result_ttl_ms: int


class WorkerSpec(msgspec.Struct, frozen=True):
    """For a worker; `model` is what `models.detect` found."""

    lane: LaneSpec
    worker: int
    model: Any
    threads: int
    precision: str
    image_resize: tuple[int, int] | None
    post_processing: str
