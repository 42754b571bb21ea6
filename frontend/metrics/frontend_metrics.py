"""Metrics of a frontend: the timers and counts of all its processes."""

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from cluster_serving.frontend.metrics.buckets import LE_S, Times, cumulative
from cluster_serving.frontend.metrics.timers import Count, Reading, Timer

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


def frontend_metrics(reading: Reading) -> Iterator[Metric]:
    """Yield the metrics of a frontend."""
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
    callbacks = CounterMetricFamily(
        "cluster_serving_callbacks", "Attempts to post a result to its callback.", labels=("outcome",)
    )
    callbacks.add_metric(("posted",), counts[Count.CALLBACKS])
    callbacks.add_metric(("failed",), counts[Count.CALLBACKS_FAILED])
    yield callbacks
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


def _add_times(family: HistogramMetricFamily, labels: Sequence[str], times: Times) -> None:
    family.add_metric(labels, cumulative(LE_S, times.up_to()), times.total_s)
