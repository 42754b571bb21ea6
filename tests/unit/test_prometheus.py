"""The text for Prometheus: what its own parsers read from it."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.frontend.metrics.buckets import LE_S
from cluster_serving.frontend.metrics.prometheus import prometheus_text
from cluster_serving.frontend.metrics.timers import Count, Timer, Timers
from support.heartbeats import described

_FIGURES: dict[str, Any] = {
    "answered": 10,
    "failed": 3,
    "dead": 2,
    "expired": 1,
    "redelivered": 4,
    "reconnects": 5,
    "restarts": 6,
    "workers": 2,
    "workers_alive": 1,
}

_HISTOGRAMS = {
    "queue_wait": {"le": [0.001, 1], "counts": [1, 2, 3], "sum": 9.5},
    "inference": {"le": [0.001, 1], "counts": [0, 0, 0], "sum": 0},
    "write": {"le": [0.001, 1], "counts": [0, 0, 0], "sum": 0},
    "batch_rows": {"le": [1, 2, 4], "counts": [0, 1, 0, 0], "sum": 2},
}


@pytest.fixture
def timers() -> Iterator[Timers]:
    timers = Timers(2)
    yield timers
    os.close(timers.fd)


def _node(**figures: Any) -> Heartbeat:
    return Heartbeat.decode(described(node="n1", batch_size=32, figures=_FIGURES | figures).encode())


def _samples(
    timers: Timers, *nodes: Heartbeat, parse: Callable[[str], Iterable[Metric]] = parse_text
) -> dict[tuple[str, ...], float]:
    """The value of every sample by its name and the values of its labels: in the order of their names, `le` last."""
    text = prometheus_text(timers.read(), nodes, is_openmetrics=parse is parse_openmetrics).decode()
    return {_key(sample): sample.value for family in parse(text) for sample in family.samples}


def _key(sample: Sample) -> tuple[str, ...]:
    labels = sorted(sample.labels.items(), key=lambda label: (label[0] == "le", label))
    return (sample.name, *(value for _, value in labels))


def test_requests_are_added_up_over_the_processes(timers: Timers) -> None:
    for process in range(2):
        mine = timers.of(process)
        mine.count_request("predict", 200)
        mine.observe(Timer.OVERALL, 0.02)
        mine.count(Count.RECORDS, 3)
        mine.count(Count.QUEUE_FULL)
        mine.count(Count.IN_FLIGHT)

    found = _samples(timers)

    assert found["cluster_serving_requests_total", "200", "predict"] == 2
    assert found["cluster_serving_records_total",] == 6
    assert found["cluster_serving_rejected_total", "queue_full"] == 2
    assert found["cluster_serving_rejected_total", "limited"] == 0
    assert found["cluster_serving_in_flight",] == 2
    assert found["cluster_serving_frontend_processes",] == 2
    assert found["cluster_serving_request_seconds_bucket", "0.01"] == 0
    assert found["cluster_serving_request_seconds_bucket", "0.025"] == 2
    assert found["cluster_serving_request_seconds_bucket", "+Inf"] == 2
    assert found["cluster_serving_request_seconds_count",] == 2
    assert found["cluster_serving_request_seconds_sum",] == pytest.approx(0.04)


def test_every_timer_is_a_histogram_with_the_same_bounds(timers: Timers) -> None:
    found = _samples(timers)

    bounds = {name[1] for name in found if name[0] == "cluster_serving_redis_put_seconds_bucket"}
    assert bounds == {*map(str, LE_S), "+Inf"}
    assert sum(name[0].endswith("_seconds_bucket") for name in found) == len(Timer) * (len(LE_S) + 1)


def test_models_have_a_histogram_each(timers: Timers) -> None:
    timers.of(0).observe_model('re"s\nnet', "1", 0.002, None)

    found = _samples(timers)

    assert found["cluster_serving_model_request_seconds_bucket", 're"s\nnet', "1", "0.001"] == 0
    assert found["cluster_serving_model_request_seconds_bucket", 're"s\nnet', "1", "0.0025"] == 1


def test_what_heartbeats_say_is_there_by_job_and_node(timers: Timers) -> None:
    second = _node(node="n2", state="starting", answered=1, histograms=_HISTOGRAMS)

    found = _samples(timers, _node(), second)

    assert found["cluster_serving_records_answered_total", "job", "n1"] == 10
    assert found["cluster_serving_records_answered_total", "job", "n2"] == 1
    assert found["cluster_serving_records_dead_total", "job", "n1"] == 2
    assert found["cluster_serving_restarts_total", "job", "n1"] == 6
    assert found["cluster_serving_workers_alive", "job", "n1"] == 1
    assert found["cluster_serving_batch_size", "job", "n1"] == 32
    assert found["cluster_serving_node_ready", "job", "n1"] == 1
    assert found["cluster_serving_node_ready", "job", "n2"] == 0
    assert found["cluster_serving_queue_wait_seconds_bucket", "job", "n2", "0.001"] == 1
    assert found["cluster_serving_queue_wait_seconds_bucket", "job", "n2", "1.0"] == 3
    assert found["cluster_serving_queue_wait_seconds_count", "job", "n2"] == 6
    assert found["cluster_serving_queue_wait_seconds_sum", "job", "n2"] == 9.5
    assert found["cluster_serving_batch_rows_sum", "job", "n2"] == 2


def test_what_an_older_node_does_not_say_is_left_out(timers: Timers) -> None:
    found = _samples(timers, _node())

    assert not any(
        name[0].startswith(f"cluster_serving_{missing}")
        for name in found
        for missing in ("queue_wait", "inference", "write", "batch_rows", "backlog", "oldest_age", "dead_letters")
    )


def test_a_queue_has_one_backlog_however_many_nodes_look_at_it(timers: Timers) -> None:
    first = _node(backlog=10, oldest_ms=2500, dead_letters=1)
    second = _node(node="n2", backlog=7, oldest_ms=100, dead_letters=1)

    found = _samples(timers, first, second)

    assert found["cluster_serving_backlog", "job"] == 10
    assert found["cluster_serving_oldest_age_seconds", "job"] == 2.5
    assert found["cluster_serving_dead_letters", "job"] == 1


def test_a_name_that_two_nodes_have_is_told_once(timers: Timers) -> None:
    text = prometheus_text(timers.read(), [_node(), _node()], is_openmetrics=False).decode()

    assert text.count('cluster_serving_node_ready{job_name="job",node="n1"}') == 1


def test_openmetrics_says_the_same(timers: Timers) -> None:
    timers.of(0).count_request("predict", 200)
    node = _node(histograms=_HISTOGRAMS, backlog=1)

    strict = _samples(timers, node, parse=parse_openmetrics)
    text = _samples(timers, node)

    strict.pop(("cluster_serving_frontend_uptime_seconds",))
    text.pop(("cluster_serving_frontend_uptime_seconds",))
    assert strict == text


def test_every_metric_says_what_it_is(timers: Timers) -> None:
    text = prometheus_text(timers.read(), [_node(histograms=_HISTOGRAMS)], is_openmetrics=True).decode()

    parse: Callable[[str], Iterable[Metric]] = parse_openmetrics  # has no types of its own
    families = list(parse(text))
    assert all(family.documentation.endswith(".") and family.type != "unknown" for family in families)
    assert len({family.documentation for family in families}) == len(families)


@pytest.mark.parametrize("parse", [parse_text, parse_openmetrics])
@pytest.mark.parametrize(
    "damaged",
    [
        {"histograms": None},
        {"histograms": [1]},
        {"histograms": {"write": "x"}},
        {"histograms": {"write": {"le": [1.0], "counts": [1], "sum": 1}}},
        {"histograms": {"write": {"le": [1.0], "counts": [10**400, 1], "sum": 1}}},
        {"histograms": {"write": {"le": [1.0], "counts": [1, 1], "sum": 10**400}}},
        {"answered": "x", "backlog": [1], "oldest_ms": None, "rows": 10**400},
    ],
)
def test_a_damaged_heartbeat_takes_no_other_with_it(
    timers: Timers, damaged: dict[str, Any], parse: Callable[[str], Iterable[Metric]]
) -> None:
    nodes = [_node(node="damaged", **damaged), _node(histograms=_HISTOGRAMS, rows=7, backlog=3)]

    text = prometheus_text(timers.read(), nodes, is_openmetrics=parse is parse_openmetrics).decode()

    found = {
        (sample.name, sample.labels.get("node")): sample.value for family in parse(text) for sample in family.samples
    }
    assert found["cluster_serving_rows_total", "n1"] == 7
    assert found["cluster_serving_backlog", None] == 3
    assert found["cluster_serving_queue_wait_seconds_count", "n1"] == 6
    assert found["cluster_serving_node_ready", "damaged"] == 1
    assert ("cluster_serving_write_seconds_count", "damaged") not in found
