"""Timers, counts and the figures of the nodes' heartbeats for Prometheus: its text, or OpenMetrics."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Annotated

import msgspec
from prometheus_client import exposition
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics

from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.frontend.metrics.buckets import LE_S, Times
from cluster_serving.frontend.metrics.timers import Count, Reading, Timer

# Prometheus itself gives each series a label `job`, and renames a label `job` of ours.
_OF_NODE = ("job_name", "node")

_TIMERS = {
    Timer.OVERALL: ("request", "A request of any kind, to its answer."),
    Timer.PREDICT: ("predict_request", "A request that is answered with predictions, to its answer."),
    Timer.METRICS: ("metrics_request", "A request for /metrics, to its answer."),
    Timer.FIND_MODEL: ("find_model", "Finding the model that a request names."),
    Timer.LIST_MODELS: ("list_models", "Listing models, or the versions of one."),
    Timer.MAKE_RECORDS: ("make_records", "From the body of a request to records."),
    Timer.INFERENCE: ("backend_inference", "The records of a request, from before the queue to the last answer."),
    Timer.REDIS_PUT: ("redis_put", "The records of a request until Redis has taken them; requests share pipelines."),
    Timer.REDIS_WAIT: ("redis_wait", "The records of a request from being in the queue to the last answer."),
    Timer.REDIS_GET: ("redis_get", "Decoding the results of one read of the reply stream."),
    Timer.MAKE_RESPONSE: ("make_response", "From results to the body of a response."),
}

_REASONS = {
    Count.LIMITED: "limited",
    Count.QUEUE_FULL: "queue_full",
    Count.PREDICTED_WAIT: "predicted_wait",
}

_NODE_COUNTERS = {
    "read": ("records_read", "Records that the node took from the queue."),
    "refused": (
        "records_refused",
        "Records answered with an error at once, because they did not fit the model.",
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


_MOST = 2.0**53
"""Largest count that is believed. Python cannot even make a float of every number that JSON can write."""

_Number = Annotated[float, msgspec.Meta(ge=-_MOST, le=_MOST)]
_Tally = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class _Histogram(msgspec.Struct):
    """Histogram of a heartbeat, with one more bucket count than bounds.

    Raises:
        ValueError: the numbers of counts and bounds do not fit.
    """

    le: list[_Number]
    counts: list[_Tally]
    sum: _Number

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.le) + 1:
            raise ValueError(f"{len(self.counts)} counts for {len(self.le)} bounds")

    def cumulative(self) -> list[tuple[str, float]]:
        return _cumulative(self.le, list(accumulate(self.counts)))


class _Families:
    """Object with the method `collect`, as the exposition functions need."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return all families."""
        return self._families


def prometheus_text(reading: Reading, nodes: Sequence[Heartbeat], *, is_openmetrics: bool) -> bytes:
    """Return everything known of this frontend and the nodes on its Redis.

    Args:
        reading: reading of the timers.
        nodes: live nodes.
        is_openmetrics: OpenMetrics 1.0 instead of Prometheus' own text 0.0.4.
    """
    # A node with the same job and name on another Redis would void the whole text.
    once = {(node.job, node.node): node for node in nodes}
    families = _Families([*_of_frontend(reading), *_of_nodes(list(once.values()))])
    render: Callable[[_Families], bytes] = openmetrics.generate_latest if is_openmetrics else exposition.generate_latest
    return render(families)


def _of_frontend(reading: Reading) -> Iterator[Metric]:
    counts = reading.counts
    requests = CounterMetricFamily(
        "cluster_serving_requests", "Requests answered, by route and HTTP status.", labels=("route", "code")
    )
    for labels, number in sorted(reading.requests.items()):
        requests.add_metric(labels, number)
    yield requests
    yield CounterMetricFamily(
        "cluster_serving_records", "Records that requests brought for a queue.", counts[Count.RECORDS]
    )
    rejected = CounterMetricFamily(
        "cluster_serving_rejected",
        "Requests refused: no token, no room in the queue, or too long a wait.",
        labels=("reason",),
    )
    for count, reason in _REASONS.items():
        rejected.add_metric((reason,), counts[count])
    yield rejected
    yield GaugeMetricFamily(
        "cluster_serving_in_flight", "Requests that have begun and not ended.", counts[Count.IN_FLIGHT]
    )
    yield GaugeMetricFamily(
        "cluster_serving_frontend_processes", "Processes of this frontend that live.", reading.processes
    )
    yield GaugeMetricFamily(
        "cluster_serving_frontend_uptime_seconds", "Seconds since this frontend was started.", reading.uptime_s
    )
    for timer, (name, meaning) in _TIMERS.items():
        family = HistogramMetricFamily(f"cluster_serving_{name}_seconds", meaning, labels=())
        _add_times(family, (), reading.timers[timer])
        yield family
    models = HistogramMetricFamily(
        "cluster_serving_model_request_seconds",
        "The records of a request, from before the queue to the last answer, by model.",
        labels=("model", "version"),
    )
    for labels, (calls, _) in sorted(reading.models.items()):
        _add_times(models, labels, calls)
    yield models


def _of_nodes(nodes: Sequence[Heartbeat]) -> Iterator[Metric]:
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
            value = _figure(node, figure)
            if value is not None:
                jobs[node.job] = max(jobs.get(node.job, 0), value)
        family = GaugeMetricFamily(f"cluster_serving_{name}", meaning, labels=("job_name",))
        for job, worst in jobs.items():
            family.add_metric((job,), worst * unit)
        yield family
    for figure, (name, meaning) in _NODE_HISTOGRAMS.items():
        histograms = HistogramMetricFamily(f"cluster_serving_{name}", meaning, labels=_OF_NODE)
        for node in nodes:
            told = node.figures.get("histograms")
            try:
                histogram = msgspec.convert(told.get(figure), _Histogram | None) if isinstance(told, dict) else None
            except msgspec.ValidationError:
                continue
            if histogram is not None:
                histograms.add_metric((node.job, node.node), histogram.cumulative(), histogram.sum)
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
        value = _figure(node, figure)
        if value is not None:
            family.add_metric((node.job, node.node), value)
    return family


def _figure(node: Heartbeat, figure: str) -> float | None:
    """Return a figure of a node if it is a number. A damaged heartbeat must not take the metrics of all nodes with it."""
    value = node.figures.get(figure)
    return value if isinstance(value, int | float) and abs(value) <= _MOST else None


def _add_times(family: HistogramMetricFamily, labels: Sequence[str], times: Times) -> None:
    family.add_metric(labels, _cumulative(LE_S, times.up_to()), times.total_s)


def _cumulative(bounds: Sequence[float], ranks: Sequence[float]) -> list[tuple[str, float]]:
    return list(zip([*map(str, map(float, bounds)), "+Inf"], ranks, strict=True))
