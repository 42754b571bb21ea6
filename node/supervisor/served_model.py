"""Model and configuration shared by the lanes of one generation, and facts about the model that workers report.

A node has one generation of lanes, and two generations during a change: the new generation loads beside the old generation.
"""

from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Any

import msgspec
import structlog

from cluster_serving.node.config.conditions import key_of, of_proof
from cluster_serving.node.config.loading import Config
from cluster_serving.node.engines.batching import Batching
from cluster_serving.node.engines.trials import Trials
from cluster_serving.node.models.base import ModelError, TensorSpec
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.fingerprint import fingerprint
from cluster_serving.node.models.runtime import Runtime, TriedRuntime
from cluster_serving.node.ring.ring import Ring

log = structlog.get_logger(__name__)


class ServedModel:
    """Model served with one configuration.

    Args:
        config: complete configuration.
        model: model to serve.
        runtime: engine and precision. Where the runtime is open, the first worker chooses.
        proof_directory: store of the workers' proofs that rows may share a batch. Empty: nothing is kept.
    """

    def __init__(self, config: Config, model: Detected, runtime: Runtime, proof_directory: str) -> None:
        self.config = config
        self.model = model
        self.runtime = runtime
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()
        self.candidates: tuple[TriedRuntime, ...] = ()
        """Runtimes that the first worker tried, empty if there was no choice."""
        self.batching = Batching("rows")
        self.proof_directory = proof_directory
        self.proof_conditions = key_of(of_proof(config, model.backend)) if proof_directory else ""
        self.trials = trials_of(config)
        self.raw = False
        """True if records go to the workers unchanged."""
        self.threads_computing = 0
        """Largest number of threads of one worker that computed at a time during warm-up. 0: not known."""
        self.model_hash = ""
        """Fingerprint of the model, empty until the fingerprint is known."""
        self._hashing: Thread | None = None

    @property
    def hashing(self) -> bool:
        """True while the fingerprint is being computed. Writers need the fingerprint at their start."""
        return self._hashing is not None and self._hashing.is_alive()

    def start_hashing(self, rings: Sequence[Ring]) -> None:
        """Compute the fingerprint for the workers of some rings, while they load, because a model may have gigabytes."""
        self._hashing = Thread(target=self._hash, args=[rings], daemon=True)
        self._hashing.start()

    def learn(self, told: Mapping[str, Any]) -> None:
        """Store the facts that a worker has reported after loading the model."""
        self.inputs = msgspec.convert(told["inputs"], tuple[TensorSpec, ...])
        self.outputs = msgspec.convert(told["outputs"], tuple[TensorSpec, ...])
        self.batching = msgspec.convert(told["batching"], Batching)
        self.raw = bool(told["raw"])
        self.runtime = msgspec.convert(told["runtime"], Runtime)
        self.candidates = msgspec.convert(told["candidates"], tuple[TriedRuntime, ...]) or self.candidates
        self.threads_computing = max(self.threads_computing, told["threads"]["computing"])

    def _hash(self, rings: Sequence[Ring]) -> None:
        try:
            self.model_hash = fingerprint(self.model)
        except ModelError as error:
            log.warning("the model has no fingerprint", reason=str(error))
        finally:
            for ring in rings:  # workers wait for it
                ring.model_hash = self.model_hash


def trials_of(config: Config) -> Trials:
    """Return how the runtimes of a model are tried with a configuration."""
    return Trials(
        config.calibration_data,
        config.accuracy_tolerance,
        config.image_options(),
        config.accuracy_agreement,
        config.accuracy_metric,
        may_keep=config.model_secrets() is None,
    )
