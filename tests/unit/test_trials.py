"""Choice among the runtimes that were tried."""

from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from cluster_serving.node.engines import trials
from cluster_serving.node.engines.trials import REFERENCE, Trials, best, try_all
from cluster_serving.node.models.base import Array, TensorSpec
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


class Identity:
    """Model of one input of a free shape. `ran` gets the first value of each row, batch by batch."""

    def __init__(self, ran: list[list[float]]) -> None:
        self.inputs: tuple[TensorSpec, ...] = (TensorSpec("x", "float32", (None, None)),)
        self.outputs: tuple[TensorSpec, ...] = self.inputs
        self._ran = ran

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Return the batch."""
        self._ran.append(batch["x"][:, 0].tolist())
        return batch


def test_the_rows_of_the_race_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_MOST_BYTES", 5 * 400)
    ran: list[list[float]] = []
    np.save(tmp_path / "rows.npy", np.arange(9, dtype=np.float32).repeat(100).reshape(9, 100))

    (tried,) = try_all(lambda _: Identity(ran), [REFERENCE], 2, Trials(str(tmp_path / "rows.npy")))

    assert tried.refused == ""
    assert ran[:3] == [[0, 1], [2, 3], [4, 0]]
    assert {row for batch in ran for row in batch} == {0, 1, 2, 3, 4}


def test_candidates_are_told_with_speed_and_reason() -> None:
    proven = TriedRuntime("openvino", "int8", 4.123, 0.1, 0.998, "", 500, 0.9905, "499 of 500 records agree")

    assert proven.described() == "openvino int8: 4.12 ms, 499 of 500 records agree"
    assert openvino(5.0, "differs").described() == "openvino f32: 5 ms, refused, differs"
    assert (
        TriedRuntime("openvino", "f32", refused="cannot be loaded").described()
        == "openvino f32: refused, cannot be loaded"
    )
