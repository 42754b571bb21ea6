"""The JSON list of the timers: the names, fields and units of the original."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from cluster_serving.frontend.metrics.metrics_json import timers_json
from cluster_serving.frontend.metrics.timers import Timer, Timers

_FIELDS = [
    "name",
    "count",
    "meanRate",
    "min",
    "max",
    "mean",
    "median",
    "stdDev",
    "_75thPercentile",
    "_95thPercentile",
    "_98thPercentile",
    "_99thPercentile",
    "_999thPercentile",
]

_NAMES = [
    "zoo.serving.activity.make",
    "zoo.serving.backend.inference",
    "zoo.serving.redis.get",
    "zoo.serving.redis.put",
    "zoo.serving.redis.wait",
    "zoo.serving.request.metrics",
    "zoo.serving.request.overall",
    "zoo.serving.request.predict",
    "zoo.serving.response.handling",
    "zoo.serving.retrive.servable",
    "zoo.serving.retrive.servables",
]


@pytest.fixture
def timers() -> Iterator[Timers]:
    seconds = iter([0.0] + [20.0] * 1000)
    timers = Timers(2, clock=lambda: next(seconds))
    yield timers
    os.close(timers.fd)


def _rows(timers: Timers, *models: tuple[str, str]) -> list[dict[str, Any]]:
    return list(json.loads(timers_json(timers.read(), models)))


def test_all_timers_exist_from_the_start_with_zeros(timers: Timers) -> None:
    rows = _rows(timers, ("resnet", "1"))

    models = ["zoo.pure.predict.resnet.1", "zoo.serving.inference.resnet.1"]
    assert [row["name"] for row in rows] == sorted([*_NAMES, *models])
    assert all(list(row) == _FIELDS for row in rows)
    assert all(not any(row[field] for field in _FIELDS[1:]) for row in rows)


def test_times_are_milliseconds_and_the_extremes_whole_ones(timers: Timers) -> None:
    timers.of(0).observe(Timer.PREDICT, 0.0019)
    timers.of(1).observe(Timer.PREDICT, 0.0101)

    (row,) = [row for row in _rows(timers) if row["name"] == "zoo.serving.request.predict"]

    assert (row["count"], row["meanRate"]) == (2, 0.1)
    assert (row["min"], row["max"]) == (1, 10)
    assert (row["mean"], row["stdDev"]) == (pytest.approx(6.0), pytest.approx(4.1))
    assert row["_999thPercentile"] == pytest.approx(10.1, rel=0.05)


def test_counts_and_extremes_are_integers_and_the_others_are_not(timers: Timers) -> None:
    timers.of(0).observe(Timer.PREDICT, 1.0)

    kinds = [{field: type(value) for field, value in row.items()} for row in _rows(timers)]

    whole = {"count": int, "min": int, "max": int}
    assert all(kind == dict.fromkeys(_FIELDS, float) | {"name": str} | whole for kind in kinds)


def test_a_model_that_is_gone_keeps_its_timers(timers: Timers) -> None:
    timers.of(0).observe_model("old", "2", 0.5, 0.25)

    rows = {row["name"]: row for row in _rows(timers, ("new", "1"))}

    assert (rows["zoo.serving.inference.old.2"]["max"], rows["zoo.pure.predict.old.2"]["max"]) == (500, 250)
    assert rows["zoo.serving.inference.new.1"]["count"] == 0
