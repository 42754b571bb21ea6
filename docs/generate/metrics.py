"""Metrics of nodes, queues, frontends and the autoscaler, with an alert for Prometheus where one makes sense."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from cluster_serving.frontend.metrics.frontend_metrics import frontend_metrics
from cluster_serving.frontend.metrics.node_metrics import node_metrics
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.swarm.autoscale.loop import Metrics

_TOP = """# Metrics

`/metrics` of a frontend as Prometheus reads it (`Accept: text/plain`). Without the header it is the original's JSON. Below a metric
stands a condition to alert on, where one makes sense; its numbers are to begin with. A histogram has the series `_bucket`, `_count`
and `_sum`. [Monitoring](../how-to/monitoring.md) puts them to use.
"""

ALERTS = {
    "cluster_serving_node_ready": 'absent(cluster_serving_node_ready{job_name="serving_stream"} == 1)',
    "cluster_serving_workers_alive": "cluster_serving_workers_alive < cluster_serving_workers",
    "cluster_serving_restarts_total": "increase(cluster_serving_restarts_total[15m]) > 3",
    "cluster_serving_oldest_age_seconds": "cluster_serving_oldest_age_seconds > 30",
    "cluster_serving_backlog": "deriv(cluster_serving_backlog[15m]) > 0 and cluster_serving_backlog > 10000",
    "cluster_serving_dead_letters": "increase(cluster_serving_records_dead_total[15m]) > 0",
    "cluster_serving_records_failed_total": "sum by (job_name) (rate(cluster_serving_records_failed_total[5m])) / "
    "sum by (job_name) (rate(cluster_serving_records_read_total[5m])) > 0.01",
    "cluster_serving_answer_seconds": "histogram_quantile(0.99, sum by (job_name, le) "
    "(rate(cluster_serving_answer_seconds_bucket[5m]))) > 1",
    "cluster_serving_reconnects_total": "increase(cluster_serving_reconnects_total[15m]) > 10",
    "cluster_serving_spans_lost_total": "rate(cluster_serving_spans_lost_total[15m]) > 0",
    "cluster_serving_autoscaler_reason": 'cluster_serving_autoscaler_reason{cluster_serving_autoscaler_reason=~"max|held"} == 1',
    "cluster_serving_rejected_total": "rate(cluster_serving_rejected_total[5m]) > 1",
    "cluster_serving_requests_total": 'sum(rate(cluster_serving_requests_total{code=~"5.."}[5m])) / '
    "sum(rate(cluster_serving_requests_total[5m])) > 0.01",
}
"""Condition of an alert, in PromQL, by the metric that it watches."""


def metrics_page() -> str:
    """Return the page."""
    return (
        "\n".join(
            [
                _TOP,
                "## Nodes and queues",
                "",
                "Labels: `job_name`, and `node` for figures of one node.",
                "",
                *_families(node_metrics([])),
                "## Frontend",
                "",
                *_families(frontend_metrics(Timers(1).read())),
                "## Autoscaler",
                "",
                "At port 10030 of the service `autoscaler`, where a stack has one. Label: `job_name`.",
                "",
                *_families(Metrics().registry.collect()),
            ]
        ).rstrip("\n")
        + "\n"
    )


def _families(families: Iterable[Metric]) -> Iterator[str]:
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield f"### `{name}`\n\n{family.documentation} ({family.type})\n"
        if name in ALERTS:
            yield f"```promql\n{ALERTS[name]}\n```\n"
