"""Document of the dashboard: frontend, jobs, nodes, and what limits each job."""

import time
from typing import Any

import msgspec

from cluster_serving.client.servers.picture import JobPicture, limit
from cluster_serving.client.wire.heartbeat import Heartbeat, release
from cluster_serving.frontend.dashboard.point import point_of, total
from cluster_serving.frontend.metrics.timers import Count, Reading
from cluster_serving.frontend.models.models import Models, Served

_TOTALS = ("read", "answered", "failed", "expired", "dead", "redelivered", "restarts", "recycled", "reconnects")


def frontend_view(models: Models, reading: Reading, default: str) -> dict[str, Any]:
    """Return the facts about the frontend itself, for people."""
    return {
        "now_ms": round(time.time() * 1000),
        "release": release(),
        "default": default,
        "processes": reading.processes,
        "uptime_s": round(reading.uptime_s),
        "in_flight": reading.counts[Count.IN_FLIGHT],
        "requests": sum(reading.requests.values()),
        "unreachable": [registry.described for registry in models.registries if not registry.reachable],
    }


def job_view(served: Served) -> dict[str, Any]:
    """Return the facts about a model with a live node."""
    job, described = served.job, served.job.described
    picture = JobPicture.of(job.nodes)
    now_s = time.time()
    return {
        "name": served.name,
        "version": served.version,
        "job": job.name,
        "ready": job.ready,
        "state": described.state,
        "model": {
            "path": described.model,
            "hash": described.model_hash,
            "backend": described.backend,
            "engine": described.engine,
            "precision": described.precision,
            "batching": described.batching,
            "batch_size": described.batch_size,
            "raw": described.raw,
            "whole": described.already_batched,
            "inputs": msgspec.to_builtins(job.inputs),
            "outputs": msgspec.to_builtins(job.outputs),
        },
        "now": point_of(job.nodes),
        "limit": limit(picture)._asdict() if picture is not None else None,
        "totals": {name: total(job.nodes, name) for name in _TOTALS},
        "nodes": [_node_view(node, now_s) for node in job.nodes],
    }


def _node_view(node: Heartbeat, now_s: float) -> dict[str, Any]:
    return {
        "name": node.node,
        "host": node.host,
        "sockets": node.sockets,
        "state": node.state,
        "release": str(node),
        "uptime_s": max(0, round(now_s - node.started_ms / 1000)),
        "workers": node.workers,
        "workers_alive": node.workers_alive,
        "threads": node.threads,
        "budget": node.budget,
        "restarts": total([node], "restarts"),
        "answered": total([node], "answered"),
        "failed": total([node], "failed"),
        "load": node.load,
    }
