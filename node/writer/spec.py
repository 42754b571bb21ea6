"""Settings that the writer is given at its start."""

import msgspec

from cluster_serving.node.ring.spec import LaneSpec


class WriterSpec(msgspec.Struct, frozen=True):
    """For the writer.

    `legacy_filter_text`: answers in the original dialect have the exact text of the original's filters. `model_hash` goes into
    dead letters, of which the newest `max_dead_letters` are kept.
    """

    lane: LaneSpec
    result_ttl_ms: int
    legacy_filter_text: bool
    model_hash: str
    max_dead_letters: int
