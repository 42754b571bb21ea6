"""Settings that a writer gets at its start."""

import msgspec

from cluster_serving.node.processing.options import LegacyClients
from cluster_serving.node.ring.spec import LaneSpec


class WriterSpec(msgspec.Struct, frozen=True):
    """Settings of a writer.

    `legacy_filter_text`: answers in the original dialect have the exact text of the original's filters. `legacy`: clients before
    0.9, whose results have the form of their version. `model_hash` is written
    into dead letters. The newest `max_dead_letters` are kept, within `max_dead_letter_bytes` of Redis' memory. `spans`: the stages
    of traced records are sent to OpenTelemetry.
    """

    lane: LaneSpec
    result_ttl_ms: int
    legacy_filter_text: bool
    model_hash: str
    max_dead_letters: int
    max_dead_letter_bytes: int
    spans: bool = False
    legacy: LegacyClients = "off"
