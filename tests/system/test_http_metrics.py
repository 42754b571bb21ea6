"""`/metrics` of a real frontend in front of a real node, and the dashboard that is made of it."""

import json
import os
import re
import signal
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from cluster_serving.swarm.autoscale.loop import Metrics as AutoscalerMetrics
from support.private_redis import PrivateRedis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import running_node
from support.wait import wait_until

_MODEL = Path(__file__).parents[1] / "support" / "models" / "affine.py"
_DASHBOARD = Path(__file__).parents[2] / "frontend" / "metrics" / "grafana" / "cluster-serving.json"
_PREDICTIONS = 6

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

Samples = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def frontend(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFrontend]:
    """A frontend of two processes that has answered some predictions, and whose node has told of them."""
    home = tmp_path_factory.mktemp("metrics")
    with (
        running_node(home / "node", redis_server, jobName="measured", modelPath=str(_MODEL)),
        running_frontend(home / "frontend", redis_server, workers=2, jobName="measured") as frontend,
    ):
        wait_until(lambda: "zoo.serving.inference.measured.1" in _timers(frontend), "the frontend sees the job")
        for _ in range(_PREDICTIONS):
            _predict(frontend)
        answered = "cluster_serving_records_answered_total", "measured"
        wait_until(lambda: _of_job(_samples(frontend), *answered) == _PREDICTIONS, "the node has told of all")
        wait_until(
            lambda: _timers(frontend)["zoo.serving.request.predict"]["count"] == _PREDICTIONS, "both have told of all"
        )
        yield frontend


def _get(frontend: RunningFrontend, accept: str) -> tuple[Message, str]:
    request = urllib.request.Request(f"{frontend.url}/metrics", headers={"Accept": accept})  # noqa: S310 - our own URL
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        return response.headers, response.read().decode()


def _predict(frontend: RunningFrontend) -> None:
    body = json.dumps({"instances": [{"x": [1.0, 2.0, 3.0, 4.0]}]}).encode()
    with urllib.request.urlopen(f"{frontend.url}/predict", body, timeout=60) as response:  # noqa: S310 - our own URL
        assert response.status == 200


def _timers(frontend: RunningFrontend) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(_get(frontend, "*/*")[1])}


def _samples(
    frontend: RunningFrontend,
    accept: str = "text/plain; version=0.0.4",
    parse: Callable[[str], Iterable[Metric]] = parse_text,
) -> Samples:
    """Each sample by its name and the values of its labels, in the order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parse(_get(frontend, accept)[1])
        for sample in family.samples
    }


def _of_job(samples: Samples, name: str, job: str) -> float | None:
    return next((value for key, value in samples.items() if key[:2] == (name, job)), None)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "application/json"),
        (BROWSER, "application/json"),
        ("", "application/json"),
        ("image/png", "application/json"),
        ("application/json, text/plain, */*", "application/json"),
        ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
        (PROMETHEUS, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    ],
)
def test_accept_decides_on_the_form(frontend: RunningFrontend, accept: str, content_type: str) -> None:
    headers, _ = _get(frontend, accept)

    assert headers["Content-Type"] == content_type
    assert headers["Vary"] == "Accept"


def test_the_timers_of_a_prediction_have_observed_it(frontend: RunningFrontend) -> None:
    timers = _timers(frontend)

    stages = ("activity.make", "redis.put", "redis.wait", "backend.inference", "response.handling", "request.predict")
    assert {stage: timers[f"zoo.serving.{stage}"]["count"] for stage in stages} == dict.fromkeys(stages, _PREDICTIONS)
    assert timers["zoo.serving.inference.measured.1"]["count"] == _PREDICTIONS
    assert timers["zoo.pure.predict.measured.1"]["count"] == _PREDICTIONS
    assert timers["zoo.serving.request.metrics"]["count"] > 0
    assert timers["zoo.serving.redis.get"]["count"] > 0
    total_ms, put_ms, wait_ms = (
        timers[f"zoo.serving.{name}"]["mean"] for name in ("backend.inference", "redis.put", "redis.wait")
    )
    assert 0 < put_ms + wait_ms <= total_ms
    assert total_ms < timers["zoo.serving.request.predict"]["mean"]


def test_prometheus_reads_what_it_asks_for(frontend: RunningFrontend) -> None:
    runs = "cluster_serving_inference_seconds_count"

    def both_know() -> bool:
        """Of ten connections hardly all go to one process."""
        return all(_of_job(_samples(frontend), runs, "measured") == _PREDICTIONS for _ in range(10))

    wait_until(both_know, "the node has told of all")

    text, strict = _samples(frontend), _samples(frontend, PROMETHEUS, parse_openmetrics)

    assert text.keys() == strict.keys()
    assert strict["cluster_serving_requests_total", "200", "predict"] == _PREDICTIONS
    assert strict["cluster_serving_records_total",] == _PREDICTIONS
    assert strict["cluster_serving_frontend_processes",] == 2
    assert _of_job(strict, "cluster_serving_node_ready", "measured") == 1
    assert _of_job(strict, "cluster_serving_batch_rows_sum", "measured") == _PREDICTIONS


def test_whichever_process_answers_tells_of_all(frontend: RunningFrontend) -> None:
    """Each connection is a new one, so that both processes answer; a count that goes back would be read as a restart."""
    counts = [_samples(frontend)["cluster_serving_requests_total", "200", "metrics"] for _ in range(20)]

    assert counts == [counts[0] + place for place in range(20)]


def test_a_process_that_is_killed_takes_no_count_with_it(frontend: RunningFrontend) -> None:
    before = _samples(frontend)
    victim = psutil.Process(frontend.process.pid).children()[0].pid

    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in _children(frontend) and len(_children(frontend)) == 2, "another one is started")
    wait_until(frontend.answers, "it answers")
    after = wait_until(lambda: _with_two_processes(frontend), "both are counted") or {}

    counts = [key for key in before if key[0].endswith(("_total", "_count", "_bucket"))]
    assert all(after[key] >= before[key] for key in counts)
    assert after["cluster_serving_in_flight",] == 1


def _children(frontend: RunningFrontend) -> set[int]:
    return {child.pid for child in psutil.Process(frontend.process.pid).children()}


def _with_two_processes(frontend: RunningFrontend) -> Samples | None:
    try:
        samples = _samples(frontend)
    except OSError:  # it went to the process that is no more
        return None
    seen = ("cluster_serving_node_ready", "measured") in {key[:2] for key in samples}
    return samples if seen and samples["cluster_serving_frontend_processes",] == 2 else None


def test_every_panel_of_the_dashboard_shows_a_metric_that_exists(frontend: RunningFrontend) -> None:
    labels: dict[str, set[str]] = {}
    for family in parse_text(_get(frontend, "text/plain")[1]):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    labels |= {family.name: {"job_name"} for family in AutoscalerMetrics().registry.collect()}
    dashboard = json.loads(_DASHBOARD.read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]

    for panel in panels:
        for target in panel["targets"]:
            metrics = re.findall(r"\bcluster_serving_\w+", target["expr"])
            assert metrics, panel["title"]
            assert set(metrics) <= labels.keys(), panel["title"]
            told = set.union(*(labels[metric] for metric in metrics))
            assert _labels_of(target["expr"]) | set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= told
    variables = [variable["definition"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    assert all(re.findall(r"cluster_serving_\w+", variable)[0] in labels for variable in variables)


def _labels_of(expression: str) -> set[str]:
    """The labels that an expression groups or selects by."""
    grouped = re.findall(r"\bby \(([^)]*)\)", expression)
    return {label for group in grouped for label in group.split(", ")} | set(re.findall(r"(\w+)=~", expression))


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads(_DASHBOARD.read_text())
    panels = dashboard["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel.get("description") for panel in panels if panel["type"] != "row")
    cells = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
