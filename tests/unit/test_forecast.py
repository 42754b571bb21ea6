"""Forecast of the time until a record is answered."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.node.ring.forecast import Forecast, RowTimes, rows_of

MARGIN, RUNS = 1.3, 32


def test_one_run_that_was_held_up_does_not_count() -> None:
    times = RowTimes()

    assert [times.add(run_ms, 2) for run_ms in (20, 22, 900, 21)] == pytest.approx(
        [0, *(MARGIN * row_ms for row_ms in (10, 10.5, 10.5))]
    )


def test_rows_that_cost_unequally_take_the_mean_time_together() -> None:
    """One row in twelve takes a second, the rest 2 ms: 85 ms on average."""
    times = RowTimes()

    found = [times.add(sum(1000 if row % 12 == 0 else 2 for row in range(run, run + 3)), 3) for run in range(0, 300, 3)]

    assert all(60 < row_ms < MARGIN * 85 for row_ms in found[RUNS:])


def test_runs_are_forgotten_after_some_runs() -> None:
    times = RowTimes()
    for run_ms in (500, 400):
        times.add(run_ms, 1)

    found = [times.add(10, 1) for _ in range(RUNS)]

    assert found[0] == pytest.approx(MARGIN * 205)
    assert found[-2:] == pytest.approx([MARGIN * 10] * 2)


@given(st.lists(st.tuples(st.floats(0.01, 1e5), st.integers(1, 64)), min_size=2, max_size=100))
def test_the_mean_is_of_the_last_runs_without_the_longest(runs: list[tuple[float, int]]) -> None:
    times, last = RowTimes(), deque(runs, RUNS)

    found = [times.add(*run) for run in runs][-1]

    last.remove(max(last, key=lambda run: (run[0] / run[1], run)))
    assert found == pytest.approx(MARGIN * sum(ms for ms, _ in last) / sum(rows for _, rows in last), rel=1e-3)


@pytest.mark.parametrize(
    ("row_ms", "to_live_ms", "rows"),
    [(10, 500, 12), (10, 39, 1), (10, -5, 1), (10, 1 << 50, 32), (0, 500, 32)],
    ids=["a quarter of the life", "too short for one", "passed", "long", "nothing known"],
)
def test_a_batch_is_as_large_as_its_deadline_allows(row_ms: float, to_live_ms: float, rows: int) -> None:
    assert rows_of(row_ms, to_live_ms, 32) == rows


def test_an_answer_takes_what_is_ahead_and_one_and_a_half_runs() -> None:
    expected = Forecast(10, 70, 32)

    assert expected.answer_ms(500) == 70 + 1.5 * 120
    assert expected.answer_ms(60_000) == 70 + 1.5 * 320


def test_no_record_that_comes_with_some_others_takes_longer_than_the_longest() -> None:
    expected = Forecast(10, 70, 32)

    assert all(expected.answer_ms(to_live_ms) <= expected.longest_ms(1) for to_live_ms in range(0, 5000, 50))
    assert expected.longest_ms(20) == expected.longest_ms(0) + 200


@pytest.mark.parametrize("expected", [Forecast(), Forecast(10, 0, 32)], ids=["nothing is known", "the lane is empty"])
def test_a_record_is_tried_where_there_is_nothing_to_lose(expected: Forecast) -> None:
    assert expected.answer_ms(500) == 0
