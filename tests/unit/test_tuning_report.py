from pathlib import Path

import pytest

from cluster_serving.node.config.choice import Choice, Shape
from cluster_serving.node.config.objective import Measured, Objective
from cluster_serving.node.models.runtime import Runtime, TriedRuntime
from cluster_serving.node.tuning import plot, table
from cluster_serving.node.tuning.candidates import Candidate
from cluster_serving.node.tuning.report import TuningReport, described
from cluster_serving.node.tuning.search import Tried


def report(latency_ms: float = 0.0, busiest_load: float = 0.2) -> TuningReport:
    return TuningReport(
        model_hash="sha256:0",
        choice=Choice(1, 1, 8, Runtime("native", "f32")),
        objective=Objective(latency_ms),
        budget="2 cores (0-1)",
        tried=[
            Tried(Candidate(Shape(1, 1), 4), [Measured(800, 2, 4)]),
            Tried(Candidate(Shape(1, 1), 8), [Measured(900, 9, 30), Measured(1000, 5, 10), Measured(1100, 4, 9)]),
            Tried(Candidate(Shape(16, 1), 8), [], "16 copies of the model take 16.0 GB, 3.0 GB are free"),
        ],
        took_s=12.3,
        busiest_load=busiest_load,
        runtimes=(
            TriedRuntime("native", "f32", 4.0, 0.0, 1.0),
            TriedRuntime("openvino", "bf16", 1.0, 0.3, 0.9, "differs by 30 %"),
            TriedRuntime("openvino", "int8", 5.0, 0.2, 0.998, "", 500, 0.9905, "499 of 500 records agree"),
        ),
        batching="rows (checked: largest difference 2e-07)",
    )


def test_table_marks_the_best_and_says_why_others_are_refused() -> None:
    lines = list(table.candidates(report()).lines(80))

    assert max(map(len, lines)) <= 80
    (best,) = [line for line in lines if line.endswith("best")]
    assert best.split()[:4] == ["1", "1", "8", "1,000"]  # the median
    assert best.count("█") > next(line for line in lines if " 800 " in line).count("█")
    assert lines[-2].split() == ["16", "1", "8", "-", "-", "-", "refused"]
    assert lines[-1] == "    16 copies of the model take 16.0 GB, 3.0 GB are free"


def test_runtimes_have_units_in_their_headings_and_reasons_below() -> None:
    assert list(table.runtimes(report().runtimes, report().choice.runtime).lines(80)) == [
        "engine    precision  ms a batch  largest error  same arg max %",
        "native    f32                 4              0           100.0  best",
        "openvino  bf16                1            0.3            90.0  refused",
        "    differs by 30 %",
        "openvino  int8                5            0.2            99.8",
        "    499 of 500 records agree",
    ]


def test_report_is_printed_with_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    table.show(report())
    printed = capsys.readouterr().out

    assert "16 copies of the model take 16.0 GB, 3.0 GB are free" in printed  # one line, because no terminal cuts it
    assert "Best: 1 worker x 1 thread, batch 8: 1,000 records/s, p99 10 ms." in printed
    assert "\nBatching rows (checked: largest difference 2e-07).\n" in printed
    assert described(report())["batching"] == "rows (checked: largest difference 2e-07)"


def test_better_figure_than_that_of_the_best_is_explained() -> None:
    found = report()
    found.tried.append(Tried(Candidate(Shape(2, 1), 16), [Measured(1020, 5, 10)]))

    assert "Better figures" in table.summary(found)
    assert "Better figures" not in table.summary(report())


@pytest.mark.parametrize(("latency_ms", "met"), [(0, True), (10, True), (9, False)])
def test_unmet_objective_is_told(latency_ms: float, met: bool) -> None:
    found = report(latency_ms)

    assert ("this comes nearest" in table.summary(found)) is not met
    assert described(found)["met"] is met


def test_load_that_could_not_do_more_is_told() -> None:
    assert "busy all the time" in table.summary(report(busiest_load=0.97))
    assert "busy all the time" not in table.summary(report())


@pytest.mark.parametrize(("share", "expected"), [(0, ""), (1 / 128, "▏"), (0.5, "█" * 8), (1, "█" * 16)])
def test_bar(share: float, expected: str) -> None:
    assert table.bar(share) == expected


def test_picture_is_a_png(tmp_path: Path) -> None:
    plot.draw(report(), "a model", tmp_path / "p.png")

    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
