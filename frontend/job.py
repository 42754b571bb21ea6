"""A job as described in the heartbeats of its nodes."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cluster_serving.client.tensor_spec import TensorSpec


class Node(msgspec.Struct, frozen=True):
    """One heartbeat of a node. `figures` has every count of the heartbeat by name (`answered`, `workers_alive`, ...)."""

    job: str
    node: str
    state: str
    model: str
    model_hash: str
    backend: str
    engine: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batch_size: int
    raw: bool
    already_batched: bool
    started_ms: int
    figures: Mapping[str, Any]

    @classmethod
    def decode(cls, beat: bytes) -> "Node":
        """Return the node of a heartbeat.

        Raises:
            msgspec.MsgspecError: the heartbeat is not of this version.
        """
        fields = msgspec.json.decode(beat, type=dict[str, Any])
        return msgspec.convert({**fields, "figures": fields}, cls)

    @property
    def ready(self) -> bool:
        """True while the node takes records."""
        return self.state == "ready"


class Job(msgspec.Struct, frozen=True):
    """A job with at least one live node. Ready nodes come first, then the nodes that were started last."""

    name: str
    nodes: tuple[Node, ...]

    @property
    def ready(self) -> bool:
        """True while at least one node takes records."""
        return self.nodes[0].ready

    @property
    def described(self) -> Node:
        """Node that describes the inputs and outputs of the whole job."""
        return self.nodes[0]

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs of the model. Empty: any number of float32 tensors, or no worker has loaded the model yet."""
        return self.described.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Outputs of the model. Empty: known only after a run."""
        return self.described.outputs
