"""Metrics of nodes: the figures of their heartbeats."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from cluster_serving.client.wire.heartbeat import Heartbeat, Histogram
from cluster_serving.frontend.metrics.buckets import cumulative

# Prometheus itself gives each series a label `job`, and renames a label `job` of ours.
_OF_NODE = ("job_name", "node")

_NODE_COUNTERS = {
    "read": ("records_read", "Records that the node took from the queue."),
    "refused": (
        "records_refused",
        "Records answered with an error at once, because they did not fit the model.",
    ),
    "bound_by_order": (
        "records_bound_by_order",
        "Records whose several inputs were bound by order, because no name was one of the model's.",
    ),
    "redelivered": ("records_redelivered", "Records taken again after a process or a node died with them."),
    "answered": ("records_answered", "Records answered with a result."),
    "failed": ("records_failed", "Records answered with an error."),
    "expired": ("records_expired", "Failed records whose deadline had passed."),
    "dead": ("records_dead", "Failed records that became dead letters."),
    "repeated": ("records_repeated", "Records that another node had finished already; not answered again."),
    "runs": ("runs", "Runs of the model: batches."),
    "rows": ("rows", "Rows in all runs of the model."),
    "restarts": ("restarts", "Processes of the node started again after they had died or hung."),
    "recycled": ("workers_recycled", "Workers replaced because they used more memory than maxWorkerMemory."),
    "shadowed": ("records_shadowed", "Records that the shadow has run through the model in float32 too."),
    "shadow_agreeing": ("records_shadow_agreeing", "Records among them whose answer agrees with that of float32."),
    "spans_lost": ("spans_lost", "Spans of OpenTelemetry that no receiver took in time."),
    "reconnects": ("reconnects", "Connections to Redis after the first one."),
}

_NODE_GAUGES = {
    "workers": ("workers", "Workers that the node has when none is missing."),
    "workers_alive": ("workers_alive", "Workers that have loaded the model and run."),
    "batch_size": ("batch_size", "Rows of a full batch."),
}

_NODE_HISTOGRAMS = {
    "queue_wait": (
        "queue_wait_seconds",
        "From the moment a record is enqueued until its batch is closed, in the node that read it.",
    ),
    "inference": ("inference_seconds", "Runs of the model, one for each batch."),
    "write": ("write_seconds", "Publishing results: one call of Redis, for a batch or a part of it."),
    "answer": ("answer_seconds", "From the moment a record is enqueued until its result is published."),
    "batch_rows": ("batch_rows", "Rows in the batches that were run."),
}

_JOB_GAUGES: dict[str, tuple[str, str, float]] = {
    "backlog": ("backlog", "Records in the queue of the job, with the records that nodes work on.", 1),
    "oldest_ms": (
        "oldest_age_seconds",
        "Age of the oldest record in the queue of the job. 0: the queue is empty.",
        1e-3,
    ),
    "dead_letters": ("dead_letters", "Dead letters that are kept for the job.", 1),
}


def node_metrics(nodes: Sequence[Heartbeat]) -> Iterator[Metric]:
    """Yield the metrics of nodes, and of the queues of their jobs."""
    ready = GaugeMetricFamily("cluster_serving_node_ready", "1 if the node takes records, else 0.", labels=_OF_NODE)
    for node in nodes:
        ready.add_metric((node.job, node.node), node.ready)
    yield ready
    for figure, (name, meaning) in _NODE_COUNTERS.items():
        yield _figures(CounterMetricFamily, figure, name, meaning, nodes)
    for figure, (name, meaning) in _NODE_GAUGES.items():
        yield _figures(GaugeMetricFamily, figure, name, meaning, nodes)
    for figure, (name, meaning, unit) in _JOB_GAUGES.items():
        # The nodes look at the queue of a job at different times, and the worst figure counts.
        jobs: dict[str, float] = {}
        for node in nodes:
            value = node.figures.get(figure)
            if value is not None:
                jobs[node.job] = max(jobs.get(node.job, 0), value)
        family = GaugeMetricFamily(f"cluster_serving_{name}", meaning, labels=("job_name",))
        for job, worst in jobs.items():
            family.add_metric((job,), worst * unit)
        yield family
    for figure, (name, meaning) in _NODE_HISTOGRAMS.items():
        histograms = HistogramMetricFamily(f"cluster_serving_{name}", meaning, labels=_OF_NODE)
        for node in nodes:
            histogram: Histogram | None = node.figures["histograms"].get(figure)
            if histogram is not None:
                buckets = cumulative(histogram.le, list(accumulate(histogram.counts)))
                histograms.add_metric((node.job, node.node), buckets, histogram.sum)
        yield histograms


def _figures(
    kind: Callable[..., CounterMetricFamily | GaugeMetricFamily],
    figure: str,
    name: str,
    meaning: str,
    nodes: Sequence[Heartbeat],
) -> Metric:
    family = kind(f"cluster_serving_{name}", meaning, labels=_OF_NODE)
    for node in nodes:
        value = node.figures.get(figure)
        if value is not None:
            family.add_metric((node.job, node.node), value)
    return family
