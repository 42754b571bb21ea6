"""A job as described in the heartbeats of its nodes."""

from collections.abc import Iterable
from functools import lru_cache

import msgspec
import structlog

from cluster_serving.client.keys import check_job
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.heartbeat import Heartbeat

log = structlog.get_logger(__name__)


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


def read_jobs(beats: Iterable[bytes]) -> dict[str, Job]:
    """Return the jobs of the nodes with these heartbeats, by name. Faults of heartbeats are logged, each once."""
    nodes: dict[str, list[Heartbeat]] = {}
    for beat in beats:
        try:
            node = Heartbeat.decode(beat)
        except msgspec.MsgspecError as error:
            _warn(f"it cannot be read: {error}")
            continue
        try:
            check_job(node.job)
        except ValueError as error:
            _warn(f"the name of its job is {node.job!r}, but {error}; start the node anew with another jobName")
            continue
        nodes.setdefault(node.job, []).append(node)
    for found in nodes.values():
        found.sort(key=lambda node: (not node.ready, not node.inputs, -node.started_ms, node.node))
    return {name: Job(name, tuple(nodes[name])) for name in sorted(nodes)}


@lru_cache
def _warn(reason: str) -> None:
    log.warning("a heartbeat is of no use", reason=reason)
