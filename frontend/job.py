"""A job as its nodes describe it in their heartbeats."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cluster_serving.client.tensor_spec import TensorSpec


class Node(msgspec.Struct, frozen=True):
    """One heartbeat; `figures` has every count of it by name (`answered`, `workers_alive`, ...)."""

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
        """The node of a heartbeat.

        Raises:
            msgspec.MsgspecError: not one of this version.
        """
        fields = msgspec.json.decode(beat, type=dict[str, Any])
        return msgspec.convert({**fields, "figures": fields}, cls)

    @property
    def ready(self) -> bool:
        """Whether it takes records."""
        return self.state == "ready"


class Job(msgspec.Struct, frozen=True):
    """A job with at least one live node; ready nodes come first, then those that were started last."""

    name: str
    nodes: tuple[Node, ...]

    @property
    def ready(self) -> bool:
        """Whether some node takes records."""
        return self.nodes[0].ready

    @property
    def described(self) -> Node:
        """The node whose word is taken for what the model takes and gives."""
        return self.nodes[0]

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What the model takes; empty: any number of float32 tensors, or no worker has loaded it yet."""
        return self.described.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What the model gives; empty: known only after a run."""
        return self.described.outputs
