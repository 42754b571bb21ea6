"""A job as described in the heartbeats of its nodes."""

import msgspec

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.heartbeat import Heartbeat


class Job(msgspec.Struct, frozen=True):
    """A job with at least one live node. Ready nodes come first, then the nodes that were started last."""

    name: str
    nodes: tuple[Heartbeat, ...]

    @property
    def ready(self) -> bool:
        """True while at least one node takes records."""
        return self.nodes[0].ready

    @property
    def described(self) -> Heartbeat:
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
