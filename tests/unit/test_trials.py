"""Choice among the runtimes that were tried."""

import pytest
from structlog.testing import capture_logs

from cluster_serving.node.engines.trials import best
from cluster_serving.node.models.runtime import Runtime, TriedRuntime

NATIVE = TriedRuntime("native", "f32", 10.0, 0.0, 1.0)


def openvino(ms: float, refused: str = "", error: float | None = 1e-6) -> TriedRuntime:
    return TriedRuntime("openvino", "f32", ms, error, 1.0, refused)


@pytest.mark.parametrize(
    ("other", "engine"),
    [
        (openvino(9.8), "native"),  # a tie: within 3 %
        (openvino(9.6), "openvino"),
        (openvino(5.0, "differs"), "native"),
        (openvino(11.0), "native"),
        (TriedRuntime("openvino", "f32", refused="cannot be loaded"), "native"),
    ],
)
def test_the_fastest_that_is_not_refused_or_the_first_of_those_as_fast(other: TriedRuntime, engine: str) -> None:
    chosen = best([NATIVE, other])

    assert chosen is not None
    assert chosen.engine == engine


def test_where_all_are_refused_the_closest_is_taken_with_a_warning() -> None:
    bf16 = TriedRuntime("openvino", "bf16", 1.0, 0.2, 1.0, "differs")

    with capture_logs() as logs:
        chosen = best([openvino(5.0, "differs", 0.1), bf16])

    assert chosen == Runtime("openvino", "f32")
    assert [line["log_level"] for line in logs] == ["warning"]


def test_what_cannot_be_compared_is_the_farthest() -> None:
    bf16 = TriedRuntime("openvino", "bf16", 5.0, 0.9, 1.0, "differs")

    assert best([openvino(1.0, "other outputs", None), bf16]) == Runtime("openvino", "bf16")


def test_nothing_is_taken_of_what_does_not_run() -> None:
    assert best([TriedRuntime("openvino", "f32", refused="cannot be loaded")]) is None
    assert best([]) is None


def test_candidates_are_told_with_speed_and_reason() -> None:
    proven = TriedRuntime("openvino", "int8", 4.123, 0.1, 0.998, "", 500, 0.9905, "499 of 500 records agree")

    assert proven.described() == "openvino int8: 4.12 ms, 499 of 500 records agree"
    assert openvino(5.0, "differs").described() == "openvino f32: 5 ms, refused, differs"
    assert (
        TriedRuntime("openvino", "f32", refused="cannot be loaded").described()
        == "openvino f32: refused, cannot be loaded"
    )
