"""What the supervisor tells a child on its standard input, and the child answers on its ready pipe."""

import msgspec

from cluster_serving.node.models.base import LoadOptions, TensorSpec
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.runtime import Runtime
from cluster_serving.node.models.secrets import Secrets
from cluster_serving.node.processing.options import DecodeOptions, ImageOptions
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


class WorkerSpec(msgspec.Struct, frozen=True):
    """For a worker.

    `model` is what `models.detect` found. `runtime` is the setting, or what the first worker chose; where it is open, the
    candidates are tried on `calibration_data`, and refused beyond `accuracy_tolerance`. `model_secrets` and `record_secrets` are
    `None` where nothing is encrypted. `labels`, `processing` and `calibration_data` are the configuration's, as absolute paths.
    """

    lane: LaneSpec
    worker: int
    model: Detected
    options: LoadOptions
    runtime: Runtime
    calibration_data: str
    accuracy_tolerance: float
    images: ImageOptions
    post_processing: str
    labels: str
    processing: str
    model_secrets: Secrets | None
    record_secrets: Secrets | None
