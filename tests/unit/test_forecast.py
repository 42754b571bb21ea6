"""How long until a record is answered."""

import pytest

from cluster_serving.node.ring.forecast import Forecast, RowTimes, rows_of


def test_one_run_that_was_held_up_does_not_count() -> None:
    times = RowTimes()

    assert [times.add(run_ms, 2) for run_ms in (20, 22, 900, 21)] == [10, 10, 11, 11]


def test_the_longest_but_one_counts_and_is_forgotten_after_some_runs() -> None:
    times = RowTimes()
    for run_ms in (500, 400):
        times.add(run_ms, 1)

    found = [times.add(10, 1) for _ in range(8)]

    assert found == [400] * 6 + [10] * 2


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
