"""Settings that a reader gets at its start."""

import msgspec

from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.processing.options import DecodeOptions
from cluster_serving.node.ring.spec import LaneSpec


class ReaderSpec(msgspec.Struct, frozen=True):
    """Settings of a reader. `inputs` is empty where the model takes any number of tensors.

    `consumer` is the reader's name in the consumer group. No two processes read under the same name at the same time, and the
    next process with the name takes over the entries left by the previous process. `lease_s` and `max_deliveries` come from the
    configuration.
    """

    lane: LaneSpec
    consumer: str
    inputs: tuple[TensorSpec, ...]
    max_batch_delay_ms: float
    decoding: DecodeOptions
    lease_s: float
    max_deliveries: int
