"""Settings that the reader is given at its start."""

import msgspec

from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.processing.options import DecodeOptions
from cluster_serving.node.ring.spec import LaneSpec


class ReaderSpec(msgspec.Struct, frozen=True):
    """For the reader; `inputs` is empty where the model takes any number of tensors.

    `consumer` is its name in the group: no other process reads under it at the same time, and who reads under it later takes
    over what it has left. `lease_s` and `max_deliveries` are the configuration's.
    """

    lane: LaneSpec
    consumer: str
    inputs: tuple[TensorSpec, ...]
    max_batch_delay_ms: float
    decoding: DecodeOptions
    lease_s: float
    max_deliveries: int
