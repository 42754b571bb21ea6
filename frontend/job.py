"""A job as described in the heartbeats of its nodes."""

from collections.abc import Iterable
from functools import lru_cache

import msgspec
import structlog

from cluster_serving.client.keys import check_job
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.heartbeat import Heartbeat, Release, release

log = structlog.get_logger(__name__)


class Job(msgspec.Struct, frozen=True):
    """A job with at least one live node. Callable nodes come first, then the nodes that were started last."""

    name: str
    nodes: tuple[Heartbeat, ...]

    @property
    def ready(self) -> bool:
        """True while at least one node takes records, and its answers can be read."""
        return self.nodes[0].is_callable

    @property
    def states(self) -> str:
        """State of each node, for people."""
        unread = f", but this frontend, of version {release()}, cannot read version"
        return ", ".join(
            f"{node.node} is {node.state}{'' if node.is_understood else f'{unread} {node}'}" for node in self.nodes
        )

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


def read_nodes(beats: Iterable[bytes]) -> list[Release]:
    """Return the nodes with these heartbeats. Of a heartbeat of an unknown form: the release of the node.

    Faults of heartbeats, and releases that are not the frontend's, are logged, each once.
    """
    nodes: list[Release] = []
    for beat in beats:
        try:
            node = Release.read(beat)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            _warn(f"it cannot be read: {error}")
            continue
        try:
            check_job(node.job)
        except ValueError as error:
            _warn(f"the name of its job is {node.job!r}, but {error}; start the node anew with another jobName")
            continue
        if not node.is_own:
            _tell(str(node), is_understood=node.is_understood)
        try:
            nodes.append(Heartbeat.decode(beat))
        except msgspec.MsgspecError as error:
            _warn(f"it cannot be read: {error}")
            nodes.append(node)
    return nodes


def jobs_of(nodes: Iterable[Release]) -> dict[str, Job]:
    """Return the jobs of nodes, by name. Nodes of which only the release is known are left out."""
    found: dict[str, list[Heartbeat]] = {}
    for node in nodes:
        if isinstance(node, Heartbeat):
            found.setdefault(node.job, []).append(node)
    for each in found.values():
        each.sort(key=lambda node: (not node.is_callable, not node.inputs, -node.started_ms, node.node))
    return {name: Job(name, tuple(found[name])) for name in sorted(found)}


@lru_cache
def _warn(reason: str) -> None:
    log.warning("a heartbeat is of no use", reason=reason)


@lru_cache
def _tell(version: str, *, is_understood: bool) -> None:
    if is_understood:
        log.info("nodes are of another version", nodes=version, frontend=release())
    else:
        log.warning("nodes are of a version whose answers cannot be read", nodes=version, frontend=release())
