"""What the lanes of one generation have in common, and what they come to know of their model.

A node has one generation of lanes, and two while it changes: the new one loads beside the old one.
"""

from collections.abc import Mapping
from threading import Thread
from typing import Any

import msgspec
import structlog

from cluster_serving.node.config.arrangement import Arrangement
from cluster_serving.node.config.loading import Config
from cluster_serving.node.models.base import ModelError, TensorSpec
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.fingerprint import fingerprint
from cluster_serving.node.models.runtime import Runtime, TriedRuntime

log = structlog.get_logger(__name__)


class ServedModel:
    """One model, served with one configuration.

    Args:
        config: a complete one.
        model: what is served.
        node: the name of the node.
        number: how many generations the node has had before.
        arrangement: how many workers there are, and where each process runs.
    """

    def __init__(self, config: Config, model: Detected, node: str, number: int, arrangement: Arrangement) -> None:
        self.config = config
        self.model = model
        self.node = node
        self.number = number
        self.arrangement = arrangement
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()
        self.runtime = arrangement.choice.runtime
        self.candidates: tuple[TriedRuntime, ...] = ()
        """The runtimes that the first worker tried, where there was something to choose."""
        self.raw = False
        """Whether records go to the workers as they came."""
        self.threads_computing = 0
        """How many threads of one worker computed at a time, at most, when it was warmed; 0: not known."""
        self.model_hash = ""
        """The fingerprint of the model; empty until it is known."""
        # Beside the workers that load: a model may have gigabytes.
        self._hashing = Thread(target=self._hash, daemon=True)
        self._hashing.start()

    @property
    def hashing(self) -> bool:
        """Whether the fingerprint, which the writers have to be told, is still being taken."""
        return self._hashing.is_alive()

    def learn(self, told: Mapping[str, Any]) -> None:
        """A worker has loaded the model, and told this of it."""
        self.inputs = msgspec.convert(told["inputs"], tuple[TensorSpec, ...])
        self.outputs = msgspec.convert(told["outputs"], tuple[TensorSpec, ...])
        self.raw = bool(told["raw"])
        self.runtime = msgspec.convert(told["runtime"], Runtime)
        self.candidates = msgspec.convert(told["candidates"], tuple[TriedRuntime, ...]) or self.candidates
        self.threads_computing = max(self.threads_computing, told["threads"]["computing"])

    def _hash(self) -> None:
        try:
            self.model_hash = fingerprint(self.model)
        except ModelError as error:
            log.warning("the model has no fingerprint", reason=str(error))
