"""Settings that a worker is given at its start."""

import msgspec

from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.runtime import Runtime
from cluster_serving.node.models.secrets import Secrets
from cluster_serving.node.processing.options import ImageOptions
from cluster_serving.node.ring.spec import LaneSpec


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
