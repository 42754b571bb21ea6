"""Heartbeats of nodes that do not run."""

from typing import Any

from cluster_serving.client.wire.heartbeat import Heartbeat

_FIELDS: dict[str, Any] = {
    "job": "job",
    "node": "n",
    "state": "ready",
    "started_ms": 0,
    "model": "m",
    "model_hash": "",
    "backend": "python",
    "engine": "native",
    "inputs": (),
    "outputs": (),
    "raw": False,
    "already_batched": False,
    "batch_size": 8,
}


def described(**fields: Any) -> Heartbeat:
    """The heartbeat of a ready node, with these fields."""
    return Heartbeat(**_FIELDS | fields)
