"""Load of a node by the growth of its figures."""

import pytest

from cluster_serving.node.ring.metrics import ANSWER, MEASURE_CELLS, Figures
from cluster_serving.node.supervisor.recent import Recent, Sample


def figures(answered: int, failed: int = 0, runs: int = 0, rows: int = 0) -> Figures:
    cells = memoryview(bytearray(8 * MEASURE_CELLS)).cast("d")
    ANSWER.observe(cells, 0.02, answered + failed)
    return Figures({"answered": answered, "failed": failed, "runs": runs, "rows": rows}, list(cells))


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, 0.0),
        ([0.02] * 4, 0.5, 0.0175),
        ([0.02, 0.04], 1.0, 0.05),
        ([0.02, 0.04], 0.5, 0.025),
        ([99.0], 0.5, 60.0),
    ],
)
def test_quantile_lies_within_its_bucket(values: list[float], share: float, expected: float) -> None:
    cells = memoryview(bytearray(8 * MEASURE_CELLS)).cast("d")
    for value in values:
        ANSWER.observe(cells, value)

    assert Figures({}, list(cells)).quantile(ANSWER, share) == pytest.approx(expected)


def test_rates_are_of_ten_seconds_and_times_of_a_minute() -> None:
    recent = Recent()
    recent.add(Sample(0, figures(0)))
    recent.add(Sample(50, figures(1000, runs=100, rows=1000)))
    load = recent.add(Sample(60, figures(1100, 20, runs=110, rows=1120)))

    assert (load.records_s, load.errors_s, load.rows) == (12, 2, 12)
    assert load.p50_s == pytest.approx(0.0175)

    recent.add(Sample(130, figures(1100, 20, runs=110, rows=1120)))
    load = recent.add(Sample(140, figures(1100, 20, runs=110, rows=1120)))
    assert (load.records_s, load.p50_s, load.p99_s, load.rows) == (0, 0, 0, 0)


def test_shares_of_processes() -> None:
    recent = Recent()
    first = recent.add(Sample(0, figures(0), {"worker-0": 5.0, "worker-1": 0.0}, {7: 1.0}, {8: 1.0}, 3.0, 10.0, 0.0))
    load = recent.add(
        Sample(10, figures(0), {"worker-0": 1.0, "worker-1": 9.5}, {7: 3.0, 9: 8.0}, {8: 1.5}, 12.0, 14.0, 2.5)
    )

    assert first.busy == (0.0, 0.0)
    assert load.busy == (0.0, 0.95)  # a worker of a new generation begins at 0
    assert (load.reader, load.writer, load.redis, load.machine, load.throttled) == (0.8, 0.05, 0.9, 0.4, 0.25)
