"""Settings that a shadow gets at its start."""

import msgspec

from cluster_serving.node.engines.trials import Trials
from cluster_serving.node.models.base import LoadOptions, TensorSpec
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.runtime import Runtime


class ShadowSpec(msgspec.Struct, frozen=True):
    """Settings of a shadow.

    `job` is the name of the job. `ring_fds` are the rings of all lanes. The counts go into the first one. `share` is the share of
    the records to compare, above 0 and up to 1. `inputs` are the inputs of the model, as a worker has reported them. `runtime` is
    the runtime of the workers, and `batch` their number of rows. `raw`: records go to the user's own `preprocess` in `processing`.
    The rest is as in `WorkerSpec`.
    """

    job: str
    ring_fds: tuple[int, ...]
    share: float
    inputs: tuple[TensorSpec, ...]
    raw: bool
    model: Detected
    model_hash: str
    options: LoadOptions
    runtime: Runtime
    batch: int
    trials: Trials
    processing: str
    proof_directory: str
    proof_conditions: str
