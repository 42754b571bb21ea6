"""Statistics extension: counts of a model's nodes since their start, summed."""

from typing import Any

from cluster_serving.client.wire.heartbeat import Heartbeat, Histogram
from cluster_serving.frontend.models.models import Served

_NS = 1e9


def model_statistics(served: Served) -> dict[str, Any]:
    """Return one entry of `model_stats`.

    The times come from the nodes' histograms: of a record from its XADD until its batch was closed (`queue`), of a run of the
    model (`compute_infer`), and of the trip to Redis with a batch of results (`compute_output`). `success` and `fail` count
    records. The whole time of a record is not measured.
    """
    nodes = served.job.nodes
    return {
        "name": served.name,
        "version": served.version,
        "inference_count": _sum(nodes, "rows"),
        "execution_count": _sum(nodes, "runs"),
        "inference_stats": {
            "success": {"count": _sum(nodes, "answered"), "ns": 0},
            "fail": {"count": _sum(nodes, "failed"), "ns": 0},
            "queue": _timed(nodes, "queue_wait"),
            "compute_infer": _timed(nodes, "inference"),
            "compute_output": _timed(nodes, "write"),
        },
        "batch_stats": [],
    }


def _sum(nodes: tuple[Heartbeat, ...], figure: str) -> int:
    return sum(int(node.figures.get(figure, 0)) for node in nodes)


def _timed(nodes: tuple[Heartbeat, ...], histogram: str) -> dict[str, int]:
    count, seconds = 0, 0.0
    for node in nodes:
        measured: Histogram | None = node.figures["histograms"].get(histogram)
        if measured is not None:
            count += sum(measured.counts)
            seconds += measured.sum
    return {"count": count, "ns": round(seconds * _NS)}
