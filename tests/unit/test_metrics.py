"""Counts and histograms: what comes into which bucket, and that figures add up."""

import pytest

from cluster_serving.node.ring.metrics import (
    BATCH_ROWS,
    COUNTER_CELLS,
    INFERENCE,
    MEASURE_CELLS,
    MEASURES,
    QUEUE_WAIT,
    WRITE,
    Count,
    Figures,
    Measure,
    observe_ages,
)

NOW_MS = 1_763_657_000_000.0


def new_cells() -> "memoryview[float]":
    return memoryview(bytearray(8 * MEASURE_CELLS)).cast("d")


def by_bound(cells: "memoryview[float]", measure: Measure) -> dict[float, int]:
    """The buckets that hold something, by their upper bound."""
    found = measure.described(cells.tolist())
    bounds = [*found["le"], float("inf")]
    return {bound: count for bound, count in zip(bounds, found["counts"], strict=True) if count}


@pytest.mark.parametrize(
    ("measure", "value", "bound"),
    [
        (WRITE, 0.0, 0.0005),
        (WRITE, 0.0005, 0.0005),  # a bound belongs to its bucket, as Prometheus has it
        (WRITE, 0.00051, 0.001),
        (WRITE, 60.0, 60),
        (WRITE, 60.1, float("inf")),
        (BATCH_ROWS, 1, 1),
        (BATCH_ROWS, 3, 4),
        (BATCH_ROWS, 64, 64),
        (BATCH_ROWS, 1025, float("inf")),
    ],
)
def test_a_value_belongs_to_the_lowest_bound_that_is_not_below_it(measure: Measure, value: float, bound: float) -> None:
    cells = new_cells()

    measure.observe(cells, value)

    assert by_bound(cells, measure) == {bound: 1}
    assert measure.described(cells.tolist())["sum"] == value


def test_measures_have_cells_of_their_own() -> None:
    cells = new_cells()

    for times, measure in enumerate(MEASURES, 1):
        for value in (0.0, 1e9):
            measure.observe(cells, value, times)

    for times, measure in enumerate(MEASURES, 1):
        found = measure.described(cells.tolist())
        assert len(found["counts"]) == len(found["le"]) + 1
        assert (found["counts"][0], found["counts"][-1], sum(found["counts"])) == (times, times, 2 * times)
        assert found["sum"] == times * 1e9


def test_bounds_rise() -> None:
    assert all(list(measure.bounds) == sorted(set(measure.bounds)) for measure in MEASURES)


def test_every_record_of_a_batch_has_waited_for_itself() -> None:
    cells = new_cells()
    waited_ms = [3, 0, 700, 3, 3]
    ids = [b"%d-%d" % (NOW_MS - waited, number) for number, waited in enumerate(waited_ms)]

    observe_ages(QUEUE_WAIT, cells, ids, NOW_MS + 0.25)

    assert by_bound(cells, QUEUE_WAIT) == {0.0005: 1, 0.005: 3, 1: 1}
    assert QUEUE_WAIT.described(cells.tolist())["sum"] == pytest.approx(0.709 + 5 * 0.00025)


@pytest.mark.parametrize(
    ("entry_id", "bound"),
    [
        (b"%d-0" % (NOW_MS + 5000), 0.0005),  # a clock that was set back
        (b"5-1", 0.0005),  # ids that a client has chosen
        (b"0-18446744073709551615", 0.0005),
        (b"18446744073709551615-0", 0.0005),
    ],
)
def test_no_id_is_too_strange_to_be_counted(entry_id: bytes, bound: float) -> None:
    cells = new_cells()

    observe_ages(QUEUE_WAIT, cells, [entry_id], NOW_MS)

    assert by_bound(cells, QUEUE_WAIT) == {bound: 1}


def test_nothing_has_waited_in_an_empty_batch() -> None:
    cells = new_cells()

    observe_ages(QUEUE_WAIT, cells, [], NOW_MS)

    assert by_bound(cells, QUEUE_WAIT) == {}


def test_the_figures_of_a_lane_are_those_of_its_processes_together() -> None:
    counters = [[0] * COUNTER_CELLS for _ in range(3)]
    measures = [new_cells() for _ in range(3)]
    for process in range(3):
        counters[process][Count.ROWS] = 10 + process
        INFERENCE.observe(measures[process], 0.5)

    found = Figures.of(counters, measures).described()

    assert found["rows"] == 33
    assert found["runs"] == 0
    assert found["histograms"]["inference"]["sum"] == 1.5
    assert sum(found["histograms"]["inference"]["counts"]) == 3
    assert found["histograms"].keys() == {"queue_wait", "inference", "write", "batch_rows", "answer"}


def test_figures_add_up_and_stay_as_they_are() -> None:
    cells = new_cells()
    WRITE.observe(cells, 2.0)
    past = Figures()
    lane = Figures({"restarts": 1}) + Figures.of([[3] * COUNTER_CELLS], [cells])

    total = past + lane + lane

    assert (total.counts["read"], total.counts["restarts"]) == (6, 2)
    assert total.described()["histograms"]["write"]["sum"] == 4
    assert (past.counts["read"], past.described()["histograms"]["write"]["sum"]) == (0, 0)
    assert lane.described()["histograms"]["write"]["sum"] == 2
