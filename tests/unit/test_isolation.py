"""Isolation: exactly the rows that kill workers fail, after a bounded number of deaths."""

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_serving.node.ring.isolation import Progress

EIGHT = [
    ("01234567", "dies"),
    ("0123", "lives"),
    ("4567", "dies"),
    ("45", "dies"),
    ("4", "lives"),
    ("5", "dies"),
    ("5", "dies"),
    ("67", "lives"),
]
"""The walk that the module draws."""


class Walk:
    """Runs of a batch until every row has an outcome.

    Args:
        rows: how many there are.
        culprits: those that kill the worker.
        at_once: the model takes no more than so many rows at once.
        accidents: the runs, by number, in which the worker is killed from outside.
    """

    def __init__(
        self, rows: int, culprits: Collection[int], at_once: int | None = None, accidents: Collection[int] = ()
    ) -> None:
        self.runs: list[tuple[str, str]] = []
        self.answered: list[int] = []
        self.failed: list[int] = []
        progress = Progress(rows)
        while run := progress.next_run[:at_once]:
            dies = not set(culprits).isdisjoint(run) or len(self.runs) in accidents
            self.runs.append(("".join(map(str, run)), "dies" if dies else "lives"))
            if dies:
                progress, culprit = progress.after_death()
                if culprit is not None:
                    self.failed.append(culprit)
            else:
                progress = progress.after_success(run.stop)
                self.answered += run

    @property
    def deaths(self) -> int:
        """Number of workers that died."""
        return [fate for _, fate in self.runs].count("dies")


def most_deaths(rows: int) -> int:
    """floor(log2 rows) + 2, for each culprit."""
    return rows.bit_length() + 1


def test_eight_rows_take_the_walk_that_is_drawn() -> None:
    walk = Walk(8, {5})

    assert walk.runs == EIGHT
    assert (walk.answered, walk.failed) == ([0, 1, 2, 3, 4, 6, 7], [5])
    assert walk.deaths == most_deaths(8)


@pytest.mark.parametrize(
    ("rows", "culprit", "deadly_runs"),
    [
        (1, 0, ["0", "0"]),
        (2, 0, ["01", "0", "0"]),
        (2, 1, ["01", "1", "1"]),
        (5, 0, ["01234", "01", "0", "0"]),
        (5, 4, ["01234", "4", "4"]),
        (8, 0, ["01234567", "0123", "01", "0", "0"]),
        (8, 7, ["01234567", "4567", "67", "7", "7"]),
    ],
)
def test_each_death_halves_the_run_and_the_culprit_dies_alone_twice(
    rows: int, culprit: int, deadly_runs: list[str]
) -> None:
    walk = Walk(rows, {culprit})

    assert [run for run, fate in walk.runs if fate == "dies"] == deadly_runs
    assert walk.failed == [culprit]


def test_behind_the_first_culprit_all_remaining_rows_run_together() -> None:
    walk = Walk(8, {1, 6})

    assert walk.runs[5:8] == [("1", "dies"), ("234567", "dies"), ("234", "lives")]
    assert walk.failed == [1, 6]


@given(st.data())
@settings(derandomize=True, max_examples=500)
def test_exactly_the_culprits_fail_within_the_bound(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 70), "rows")
    culprits = data.draw(st.sets(st.integers(0, max(0, rows - 1)), max_size=rows), "culprits")
    at_once = data.draw(st.none() | st.integers(1, 8), "at_once")

    walk = Walk(rows, culprits, at_once)

    assert walk.failed == sorted(culprits)
    assert walk.answered == [row for row in range(rows) if row not in culprits]
    assert walk.deaths <= len(culprits) * most_deaths(rows)


@given(st.data())
@settings(derandomize=True, max_examples=200)
def test_a_worker_killed_from_outside_once_makes_no_culprit(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 70), "rows")
    culprits = data.draw(st.sets(st.integers(0, rows - 1), max_size=3), "culprits")
    accident = data.draw(st.integers(0, 40), "accident")

    walk = Walk(rows, culprits, accidents={accident})

    assert walk.failed == sorted(culprits)
    assert sorted(walk.answered + walk.failed) == list(range(rows))
    assert walk.deaths <= len(culprits) * most_deaths(rows) + 1


def test_a_death_of_a_neighbour_does_not_count() -> None:
    """Row 0 dies alone once and then lives: row 1 still has two tries."""
    walk = Walk(2, {1}, accidents={1})

    assert walk.runs == [("01", "dies"), ("0", "dies"), ("0", "lives"), ("1", "dies"), ("1", "dies")]
    assert walk.failed == [1]


def test_a_death_with_nothing_left_to_run_changes_nothing() -> None:
    done = Progress(3, 3)

    assert done.after_death() == (done, None)
