"""Measures of how far outputs are apart."""

import numpy as np
import pytest

from cluster_serving.node.engines.accuracy import compare
from cluster_serving.node.models.base import Array

A = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], np.float32)
NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        (A, A, 0),
        (A, A + np.float32(0.008), 0.01),  # of the largest value, 0.8
        (A, np.where(A < 0.15, A + np.float32(0.016), A), 0.02),
        (A, A[:1], INF),
        (A, A.astype(np.float64), INF),
        (np.array([[NAN, 1, INF]]), np.array([[NAN, 1, INF]]), 0),
        (np.array([[NAN, 2, INF]]), np.array([[NAN, 2.2, INF]]), 0.1),
        (np.array([[NAN, 1.0]]), np.array([[0.0, 1.0]]), INF),
        (np.array([[0.0, 1.0]]), np.array([[NAN, 1.0]]), INF),
        (np.array([[INF, 1.0]]), np.array([[-INF, 1.0]]), INF),
        (np.array([[0.0, 0.0]]), np.array([[0.0, 1e-12]]), 1e-7),
        (np.array([[0.0, 0.0]]), np.array([[0.0, 0.1]]), 1e4),
        (np.array([[0.0, 1e-9]]), np.array([[0.0, 1.5e-9]]), 0.5),
        (np.array([[0.0, 0.0]]), np.array([[0.0, NAN]]), INF),
        (np.array([5000, 7]), np.array([5000, 7]), 0),
        (np.array([5000, 7]), np.array([5001, 7]), INF),
        (np.array([True]), np.array([False]), INF),
        (np.array(["a"], object), np.array(["a"], object), 0),
        (np.array(["a"], object), np.array(["b"], object), INF),
        (np.zeros((0, 3)), np.zeros((0, 3)), 0),
        (np.zeros((2, 0)), np.zeros((2, 0)), 0),
    ],
)
def test_the_error_is_a_share_of_the_largest_value(a: Array, b: Array, error: float) -> None:
    assert compare({"y": a}, {"y": b}, 0.01).relative_error == pytest.approx(error, rel=1e-5)


@pytest.mark.parametrize(
    ("b", "agreement"),
    [
        ([[1.0, 1.1], [0.0, 2.0]], 1),  # a tie: 0.01 of 2
        ([[1.0, 1.1], [2.1, 2.0]], 0.5),
        ([[1.2, 1.1], [2.1, 2.0]], 0.5),
    ],
)
def test_rows_have_the_same_arg_max_or_a_tie(b: list[list[float]], agreement: float) -> None:
    a = np.array([[1.01, 1.0], [0.0, 2.0]])

    assert compare({"y": a}, {"y": np.array(b)}, 0.01).arg_max_agreement == agreement


def test_every_output_counts() -> None:
    both = compare({"y": A, "z": A}, {"y": A, "z": A[:, ::-1]}, 0.01)

    assert both.relative_error == pytest.approx(0.875)
    assert both.arg_max_agreement == 0.5
    assert compare({"y": A}, {"z": A}, 0.01).relative_error == INF


def test_why_it_is_refused() -> None:
    a = np.array([[1.0, 0.99]])

    assert compare({"y": a}, {"y": a + 0.001}, 0.01).refused(0.01) == ""
    assert compare({"y": a}, {"y": a + 0.1}, 0.01).refused(0.01).startswith("differs by 0.1 of the largest value")
    # Each value within 0.009, and yet the other one is the largest by far more than rounding.
    swapped = compare({"y": a}, {"y": np.array([[0.991, 0.999]])}, 0.0095)
    assert swapped.refused(0.0095) == "another arg max in 100.00% of the rows"
    assert compare({"y": a}, {}, 0.01).refused(1).startswith("other outputs")
    assert compare({"y": 0 * a}, {"y": 0 * a + 1e-12}, 0.01).refused(0.01) == ""
    assert compare({"y": 0 * a}, {"y": 0 * a + 0.1}, 0.01).refused(0.01).startswith("differs by 1e+04")
