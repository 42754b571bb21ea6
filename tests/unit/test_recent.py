"""Load of a node by the growth of its figures."""

import pytest

from cluster_serving.client.wire.load import STAGES, ProcessLoad
from cluster_serving.node.ring.metrics import ANSWER, INFERENCE, MEASURE_CELLS, Figures
from cluster_serving.node.supervisor.recent import ProcessSample, Recent, Sample


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
    before = (
        ProcessSample("reader", 7, "0", 1.0, 2.0, 1.0),
        ProcessSample("writer", 8, "0", 1.0),
        ProcessSample("worker-0", 9, "1", 1.0, 5.0),
        ProcessSample("worker-1", 10, "2-3", 4.0),
    )
    now = (
        ProcessSample("reader", 11, "0", 8.0, 8.0, 4.0),
        ProcessSample("writer", 8, "0", 1.5),
        ProcessSample("worker-0", 9, "1", 1.0, 1.0),
        ProcessSample("worker-1", 10, "2-3", 19.0, 9.5),
    )
    first = recent.add(Sample(0, figures(0), before, 3.0, 10.0, 0.0))
    load = recent.add(Sample(10, figures(0), now, 12.0, 14.0, 2.5, 0.5))

    assert first.busy == (0.0, 0.0)
    assert load.busy == (0.0, 0.95)  # a worker of a new generation begins at 0
    assert (load.reader, load.writer, load.redis, load.machine, load.throttled) == (0.8, 0.05, 0.9, 0.4, 0.25)
    assert load.starved == 0.05
    assert load.processes[0] == ProcessLoad(name="reader", pid=11, cores="0", cpu=0.8, busy=0.3, blocked=0.3)
    assert load.processes[3] == ProcessLoad(name="worker-1", pid=10, cores="2-3", cpu=1.5, busy=0.95)


def test_stages_are_means_of_a_record_and_add_up_to_its_time() -> None:
    recent = Recent()
    recent.add(Sample(0, figures(0)))
    cells = memoryview(bytearray(8 * MEASURE_CELLS)).cast("d")
    ANSWER.observe(cells, 0.1, 10)
    INFERENCE.observe(cells, 0.03, 2)
    counted = {"answered": 10, "fill_us": 50_000, "wait_us": 100_000, "run_us": 400_000, "publish_us": 0}
    counted |= {"write_us": 150_000, "decode_us": 20_000, "store_us": 0}

    load = recent.add(Sample(10, Figures(counted, list(cells))))

    expected = {"stream": 0.03, "fill": 0.005, "wait": 0.01, "decode": 0.01, "model": 0.03, "store": 0, "publish": 0}
    assert load.stages == pytest.approx(expected | {"write": 0.015})
    assert sum(load.stages.values()) == pytest.approx(0.1)
    assert list(load.stages) == list(STAGES)
    assert recent.add(Sample(30, Figures(counted, list(cells)))).stages == {}


def test_times_without_records() -> None:
    recent, readers = Recent(), (ProcessSample("reader"), ProcessSample("reader-1"))
    recent.add(Sample(0, Figures(), readers))

    counts = {"read": 640, "read_bytes": 640_000, "emptied": 10, "empty_us": 8_000_000}
    load = recent.add(Sample(10, Figures(counts), readers))

    assert (load.burst, load.empty, load.record_bytes) == (64, 0.4, 1000)
    later = recent.add(Sample(30, Figures(counts), readers))
    assert (later.burst, later.record_bytes) == (0, 0)


def test_a_process_that_is_gone_has_no_pid() -> None:
    assert ProcessSample.of("writer", 0, 3.0, 1.0) == ProcessSample("writer", busy_s=3.0, blocked_s=1.0)
