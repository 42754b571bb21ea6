"""Settings that a worker gets at its start."""

import msgspec

from cluster_serving.node.engines.trials import Trials
from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.runtime import Runtime
from cluster_serving.node.models.secrets import Secrets
from cluster_serving.node.ring.spec import LaneSpec


class WorkerSpec(msgspec.Struct, frozen=True):
    """Settings of a worker.

    `model` is the result of `models.detect`. `runtime` is the setting, or the choice of the first worker. Where the runtime is
    open, the candidates are tried as `trials` says. `model_secrets` is `None` for an unencrypted model, `record_secrets` for
    unencrypted records. `labels` and `processing` come from the configuration, as absolute paths. `deterministic`: every batch is
    padded to the same size. `padding`: fill value of each input whose rows may have different lengths in a batch. Proofs that
    rows may share a batch are kept in `proof_directory`, under `proof_conditions`. An empty directory: not kept. `output_dtype` is
    `model` or `float16`.
    """

    lane: LaneSpec
    worker: int
    model: Detected
    options: LoadOptions
    runtime: Runtime
    trials: Trials
    post_processing: str
    labels: str
    processing: str
    model_secrets: Secrets | None
    record_secrets: Secrets | None
    deterministic: bool = False
    output_dtype: str = "model"
    padding: dict[str, float] = {}
    proof_directory: str = ""
    proof_conditions: str = ""
