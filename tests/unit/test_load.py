"""Load of `bench`: windows, stability, figures, limits and texts, by arithmetic."""

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import numpy as np
import pytest

from cluster_serving.client.http.reply import server_timing_ms
from cluster_serving.node.commands.bench_text import page
from cluster_serving.node.load.compare import compared
from cluster_serving.node.load.limit import limiting
from cluster_serving.node.load.measure import Measured, split
from cluster_serving.node.load.messages import HttpTarget, Order, Sample, Tick
from cluster_serving.node.load.result import BadResult, Result, Terms, beside, read, summed_up
from cluster_serving.node.load.sender import arrivals
from cluster_serving.node.load.windows import Window, Windows, is_stable

STAGES = {"stream": 1.0, "fill": 2.0, "wait": 3.0, "run": 4.0, "publish": 1.0}
ORDER = Order(HttpTarget("http://localhost", "/predict", None, []), 10, 100.0, "fixed", 0, 30.0, 30.0)


def tick(since_s: float, until_s: float, took_s: list[float], **fields: Any) -> Tick:
    """Answers that came at the end of the tick."""
    done_s = np.full(len(took_s), until_s, np.float64)
    packed = {"": (done_s - took_s).tobytes()}, {"": done_s.tobytes()}
    return Tick(since_s, until_s, *packed, **fields)


def window(took_ms: Sequence[float], **fields: Any) -> Window:
    """A second with these answers."""
    others: dict[str, Any] = {"samples": [], "busy": 0.0, "late_s": 0.0, "under_way": 0, "unsent": 0, "oldest_s": 0.0}
    return Window(1.0, np.array(took_ms, np.float64) / 1000, Counter(), **others | fields)


def windows_of(ticks: list[Tick]) -> list[Window]:
    windows = Windows(1)
    for each in ticks:
        windows.add(0, each)
    return windows.windows


def terms(**fields: Any) -> Terms:
    asked: dict[str, Any] = {
        "job": "j",
        "over": "queue",
        "connections": 4,
        "rate": None,
        "arrivals": None,
        "deadline_ms": None,
        "timeout_s": 30.0,
        "records": "made up",
    }
    return Terms(**asked | fields)


def result(*counted: Window, workers: int = 0, rounds: int = 1, **fields: Any) -> Result:
    """Each round has all these windows."""
    measured = Measured(1, "2026-01-01T00:00:00+00:00", list(counted), {"Bad": "told"}, counted, is_stable=True)
    return summed_up([measured] * rounds, terms(**fields), workers)


def test_a_window_has_a_second_of_every_process() -> None:
    windows = Windows(2)

    full = [windows.add(process, tick(at, at + 0.5, [0.1] * 10)) for at, process in itertools.product((0, 0.5), (0, 1))]

    assert full == [False, False, False, True]
    assert windows.windows[0].rate == 40
    assert windows.windows[0].p50_s == pytest.approx(0.1)


def test_a_window_of_slow_answers_waits_for_more() -> None:
    """Of eight connections with answers of a second, in batches of four: one batch of a window would be no rate."""
    windows = Windows(1, least=16)

    full = [windows.add(0, tick(at, at + 1, [1.0] * 4)) for at in range(4)]

    assert full == [False, False, False, True]
    assert windows.windows[0].rate == 4


def test_a_window_without_answers_ends_all_the_same() -> None:
    windows = windows_of([tick(at, at + 1, []) for at in range(10)])

    assert [(each.seconds, each.rate, each.p50_s) for each in windows] == [(10, 0, np.inf)]


@pytest.mark.parametrize(
    ("rates", "stable"),
    [
        ([100] * 8, True),
        ([100, 90, 110, 95, 105, 100, 98, 102], True),  # noise without a drift
        ([50, 60, 70, 80, 90, 100, 110, 120], False),
        ([100] * 3, False),  # too short to tell
        ([0] * 8, False),
    ],
)
def test_a_load_is_stable_when_its_halves_agree(rates: list[int], stable: bool) -> None:
    closed = [window([10.0] * rate) for rate in rates]
    opened = [window([float(rate)] * 10) for rate in rates]

    assert is_stable(closed, is_open=False) == stable
    assert is_stable(opened, is_open=True) == stable or not any(rates)


def test_figures_of_a_result() -> None:
    took_ms = [float(ms) for ms in range(1, 1001)]

    found = result(window(took_ms), window(took_ms), deadline_ms=250.0)

    assert found.latency_ms is not None
    assert msgspec.structs.astuple(found.latency_ms) == pytest.approx((500.5, 500, 900, 990, 999, 1000))
    assert (found.rate_per_s, found.goodput_per_s, found.answered) == (1000, 250, 2000)
    assert found.windows[0].keys() == {"rate_per_s", "failed", "goodput_per_s", "p50_ms", "p90_ms", "p99_ms"}


def test_stages_are_of_records_and_their_rest_is_the_client() -> None:
    """A sample stands for its batch; the stream id is rounded down to milliseconds."""
    samples = [Sample(STAGES, 1), Sample(STAGES | {"run": 8.0}, 3)]

    found = result(window([15.0] * 20, samples=samples))

    means = {name: stage.mean for name, stage in found.stages_ms.items()}
    assert means == pytest.approx({"stream": 0.5, "fill": 2, "wait": 3, "run": 7, "publish": 1, "client": 1.5})
    assert (found.limit.code, found.limit.sentence[:13]) == ("run", "For 47% of th")


@pytest.mark.parametrize(
    ("fields", "asked", "workers", "code"),
    [
        ({"busy": 0.95}, None, 1, "sender"),
        ({"late_s": 2.0, "unsent": 5, "under_way": 3}, 100.0, 1, "sender"),
        ({"late_s": 2.0, "unsent": 5, "under_way": 4}, 100.0, 1, "connections"),
        ({}, 20.0, 1, "rate"),
        ({"samples": [Sample(STAGES | {"run": 90.0}, 2)]}, None, 1, "workers"),
        ({"samples": [Sample(STAGES | {"run": 90.0}, 2)]}, None, 2, "run"),
        ({}, 100.0, 1, "unknown"),
    ],
)
def test_the_limit_of_a_load(fields: dict[str, Any], asked: float | None, workers: int, code: str) -> None:
    counted = [window([10.0] * 20, **fields)]
    samples = counted[0].samples

    found = limiting(counted, samples[0].stages_ms if samples else {}, asked, workers, 4)

    assert found.code == code


def test_a_load_whose_requests_fail_says_so() -> None:
    failing = window([10.0] * 2)
    failing.failed["Bad"] = 10

    found = result(failing, failing)

    assert found.limit.code == "errors"
    assert [(each.code, each.count, each.message) for each in found.failed] == [("Bad", 20, "told")]
    assert "Bad" in "\n".join(page(found, None, 80))


@pytest.mark.parametrize("kind", ["fixed", "poisson"])
def test_requests_are_due_at_the_asked_rate(kind: str) -> None:
    times_s = np.array(list(itertools.takewhile(lambda due_s: due_s < 120, arrivals(500, kind, 1, 100.0))))

    assert len(times_s) == pytest.approx(10_000, rel=0.05)
    assert (np.diff(times_s) >= 0).all()
    assert times_s[0] > 100
    assert np.diff(times_s).std() == pytest.approx(0.002 if kind == "poisson" else 0, rel=0.1, abs=1e-6)


def test_sending_processes_share_the_load() -> None:
    parts = split(ORDER, 4)

    assert [part.connections for part in parts] == [3, 3, 2, 2]
    assert {part.rate for part in parts} == {25.0}
    assert len({part.seed for part in parts}) == 4
    assert len(split(ORDER, 64)) == 10


def test_a_comparison_of_rounds() -> None:
    before = result(*(window([10.0 + noise] * 20) for noise in range(4)), rounds=5)
    now = result(*(window([20.0 + noise] * 20) for noise in range(4)), rounds=3, connections=8)
    now.stable = False
    now.comparison = beside(before, now, 0.05)

    lines = list(page(now, before, 80))

    told = " ".join(lines)
    assert {each.figure: each.verdict for each in now.comparison} == {
        "rate_per_s": "same",
        "failed": "same",
        "p50_ms": "worse",
    }
    assert "The loads differ (connections)" in told
    assert "A load was not stable" in told
    assert max(map(len, lines)) <= 80


def test_nothing_of_a_single_round_is_sure() -> None:
    """Its windows agree with each other, and the next round may be another."""
    before = result(*[window([10.0] * 20)] * 8, rounds=5)
    now = result(*[window([20.0] * 20)] * 8)
    now.comparison = beside(before, now, 0.05)

    assert {each.verdict for each in now.comparison} == {"unsure"}
    assert "give both loads --rounds 5" in " ".join(page(now, before, 80))


def test_a_result_has_the_published_form() -> None:
    schema = json.loads((Path(__file__).resolve().parents[2] / "docs" / "reference" / "bench.schema.json").read_text())
    failing = window([10.0] * 2, samples=[Sample(STAGES, 2)])
    failing.failed["Bad"] = 10
    found = result(failing, failing, deadline_ms=5.0)
    found.comparison = compared([{"failed": 0.0}] * 2, found.windows, 0.05)
    assert found.comparison[0].ratio is None  # some beside none

    jsonschema_rs.validator_for(schema).validate(json.loads(msgspec.json.encode(found)))


def test_a_file_that_holds_no_result(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"schema": 1}')

    with pytest.raises(BadResult, match=r"a\.json is no result of `cluster-serving bench --json`: .*`terms`"):
        read(path)


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = result(window([1.0] * 20, samples=[Sample(STAGES, 2)]), deadline_ms=5.0)
    path = tmp_path / "a.json"
    path.write_bytes(msgspec.json.encode(found))

    assert read(path) == found


@pytest.mark.parametrize("before", ["", "cdn-cache; desc=MISS, ", "edge;dur=2.5, "])
@pytest.mark.parametrize(
    "behind", ["", ", edge;dur=2.5", ",last-run;dur=9", ", total;dur=42, run;dur=1.2.3", ", db;dur=53.2.1"]
)
def test_times_of_a_frontend(before: str, behind: str) -> None:
    header = f"{before}queue;dur=1.500, wait;dur=0.500, run;dur=2.000, total;dur=5.000{behind}"

    assert server_timing_ms(header) == {"queue": 1.5, "wait": 0.5, "run": 2.0, "frontend": 1.0}


@pytest.mark.parametrize("header", ["", "edge;dur=2.5", "cdn-cache; desc=HIT"])
def test_no_times_of_a_frontend(header: str) -> None:
    assert server_timing_ms(header) == {}
