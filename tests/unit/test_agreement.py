"""Records that agree with float32, and the share of agreement that a number of records proves."""

from pathlib import Path

import numpy as np
import pytest

from cluster_serving.node.engines.agreement import (
    Agreement,
    by_metric,
    percent,
    records_needed,
    records_to_prove,
    same_arg_max,
)
from cluster_serving.node.models.base import Array, ModelError

A = np.array([[0.1, 0.9, 0.0], [0.5, 0.5, 0.0], [0.7, 0.2, 0.1]], np.float32)


@pytest.mark.parametrize(
    ("agreeing", "records", "at_least"),
    [
        # Tables of the one-sided bound of Clopper and Pearson: 1 - 0.05 ** (1 / n) without a difference, then by number.
        (1, 1, 0.05),
        (299, 299, 0.99003),
        (500, 500, 0.99403),
        (499, 500, 0.99055),
        (498, 500, 0.98746),
        (5, 10, 0.22244),
        (0, 7, 0.0),
        (999, 1000, 0.99527),
    ],
)
def test_the_share_that_records_prove(agreeing: int, records: int, at_least: float) -> None:
    assert Agreement(agreeing, records).at_least == pytest.approx(at_least, abs=2e-5)


@pytest.mark.parametrize(("share", "records"), [(0.99, 299), (0.95, 59), (0.5, 5), (0.999, 2995)])
def test_the_least_records_that_prove_a_share(share: float, records: int) -> None:
    assert records_to_prove(share) == records
    assert Agreement(records, records).at_least >= share
    assert Agreement(records - 1, records - 1).at_least < share


@pytest.mark.parametrize(("share", "batch", "records"), [(0.99, 1, 598), (0.99, 8, 608), (1.0, 1, None)])
def test_half_of_the_records_calibrate_in_whole_batches(share: float, batch: int, records: int | None) -> None:
    assert records_needed(share, batch) == records


def test_a_bound_is_never_told_higher_than_it_is() -> None:
    assert (percent(0.98996), percent(0.99), percent(1.0)) == ("98.9 %", "99 %", "100 %")
    assert Agreement(499, 500).described() == "499 of 500 records agree, 99 % or more with 95 % confidence"


@pytest.mark.parametrize(
    ("found", "agree"),
    [
        (A, [True, True, True]),
        (A + np.array([0, 0, 9]), [False, False, False]),
        ([[0, 5, 1], [0, 9, 0], [0, 1, 2]], [True, True, False]),  # row 1 is a tie in float32
        ([[np.nan, 5, 1], [9, 0, 0], [9, 0, 0]], [False, True, True]),
        (A[:, :2], [False, False, False]),
    ],
)
def test_a_record_agrees_by_its_arg_max(found: Array, agree: list[bool]) -> None:
    assert same_arg_max({"y": A}, {"y": np.asarray(found, np.float32)}).tolist() == agree


@pytest.mark.parametrize(
    ("found", "agrees"),
    [([np.nan, 1, 2], True), ([np.nan, 2, 1], False), ([0, 1, 2], False), ([1, np.nan, 2], False)],
)
def test_a_record_agrees_with_nan_in_the_same_places(found: list[float], agrees: bool) -> None:
    expected = np.array([[np.nan, 1, 2]], np.float32)

    assert same_arg_max({"y": expected}, {"y": np.array([found], np.float32)}).tolist() == [agrees]


def test_every_position_and_every_output_of_a_record_has_to_agree() -> None:
    words = np.stack([A, A])  # 2 records x 3 positions x 3 classes
    others = words.copy()
    others[1, 2] = [0, 0, 1]
    whole = np.array([3, 4])

    assert same_arg_max({"y": words}, {"y": others}).tolist() == [True, False]
    assert same_arg_max({"y": words, "n": whole}, {"y": words, "n": np.array([4, 4])}).tolist() == [False, True]


@pytest.mark.parametrize("values", [np.ones((2, 1), np.float32), np.ones(2, np.float32)])
def test_a_single_value_has_no_arg_max_to_judge_by(values: Array) -> None:
    with pytest.raises(ModelError, match="output 'y' has one value, and no arg max to compare: set accuracyMetric"):
        same_arg_max({"y": values}, {"y": values})


def test_a_record_agrees_by_the_users_score_if_it_does_not_fall(tmp_path: Path) -> None:
    file = tmp_path / "metric.py"
    file.write_text("def score(outputs, labels):\n    return outputs['y'].argmax(axis=1) == labels\n")
    expected, found = {"y": A}, {"y": np.array([[1, 0, 0], [1, 0, 0], [0, 0, 1]], np.float32)}

    judge = by_metric(f"{file}:score")

    # Right and then wrong, right both times, wrong and then right.
    assert judge(expected, found, np.array([1, 0, 2])).tolist() == [False, True, True]


def test_a_record_without_a_score_proves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "metric.py"
    file.write_text("def score(outputs, labels):\n    return outputs['y']\n")
    expected, found = {"y": np.array([np.nan, np.nan, 1, 1])}, {"y": np.array([np.nan, 1, np.nan, 1])}

    assert by_metric(f"{file}:score")(expected, found, None).tolist() == [False, True]
    assert Agreement(0, 0).share == Agreement(0, 0).at_least == 0


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def other(outputs, labels): ...", r"metric\.py has no function score\.$"),
        ("import no_such_module", r"metric\.py, line 1: ModuleNotFoundError: No module named 'no_such_module'$"),
        ("def score(outputs, labels): return 0.5", r"score gave float64 \[\] for 3 records: return a number for each$"),
        ("def score(outputs, labels): return labels[0]", r"metric\.py, line 1: TypeError: 'NoneType' object is not"),
    ],
)
def test_a_mistake_in_the_users_metric_is_named(tmp_path: Path, source: str, reason: str) -> None:
    file = tmp_path / "metric.py"
    file.write_text(source)

    with pytest.raises(ModelError, match=reason):
        by_metric(f"{file}:score")({"y": A}, {"y": A}, None)


def test_a_metric_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"accuracyMetric is \S+no\.py:score, and there is no file \S+no\.py\.$"):
        by_metric(f"{tmp_path}/no.py:score")
