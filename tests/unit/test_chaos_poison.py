import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client.wire.result import Result
from cluster_serving.node.chaos.learn import Answers, alike
from cluster_serving.node.models.base import Array, TensorSpec
from cluster_serving.node.worker.poison import (
    Effect,
    MagicRow,
    Poison,
    Poisoned,
    as_batch,
    poisoned,
    row_keys,
    runs_of,
)


class Double:
    """A backend: twice the input."""

    inputs: tuple[TensorSpec, ...] = (TensorSpec("x", "float32", (None, 2)),)
    outputs: tuple[TensorSpec, ...] = (TensorSpec("y", "float32", (None, 2)),)

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Twice the input."""
        return {"y": 2 * batch["x"]}


RAISES, SLEEPS = np.array([7, 7], np.float32), np.array([8, 8], np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "poison.json"


def write(path: Path) -> None:
    rows = [(1, RAISES, Effect.RAISE), (2, SLEEPS, Effect.SLEEP)]
    Poison(
        0.05, [MagicRow(number, row_keys(as_batch({"x": row}, ()), ())[0], effect) for number, row, effect in rows]
    ).write(path)


def batch(*rows: Any) -> dict[str, Array]:
    return {"x": np.stack([np.asarray(row, np.float32) for row in rows])}


def test_without_the_variable_the_backend_is_left_as_it_is(path: Path) -> None:
    backend = Double()

    assert poisoned(backend, {}) is backend
    assert isinstance(poisoned(backend, {"CHAOS_POISON": str(path)}), Poisoned)


def test_until_the_file_is_there_every_row_is_good(path: Path) -> None:
    backend = Poisoned(Double(), path)
    assert backend.run(batch(RAISES))["y"].tolist() == [[14, 14]]
    write(path)

    with pytest.raises(ValueError, match="raises"):
        backend.run(batch([1, 2], RAISES))


def test_other_rows_are_run_as_ever(path: Path) -> None:
    write(path)

    assert Poisoned(Double(), path).run(batch([1, 2], [3, 4]))["y"].tolist() == [[2, 4], [6, 8]]
    assert runs_of(path) == {}


def test_a_row_that_sleeps_takes_its_time_and_is_answered(path: Path) -> None:
    write(path)
    begun_s = time.monotonic()

    assert Poisoned(Double(), path).run(batch([1, 2], SLEEPS))["y"].tolist() == [[2, 4], [16, 16]]
    assert time.monotonic() - begun_s >= 0.05


def test_each_run_of_a_magic_row_is_noted(path: Path) -> None:
    write(path)
    backend = Poisoned(Double(), path)

    backend.run(batch(SLEEPS))
    with pytest.raises(ValueError, match="raises"):
        backend.run(batch(SLEEPS, RAISES))

    assert runs_of(path) == {1: 1, 2: 2}


def test_rows_are_told_apart_by_all_inputs_and_by_text() -> None:
    words = np.array([["a"], ["b"]], dtype=object)
    known = row_keys({"n": np.array([1, 1]), "words": words}, ())

    assert len(set(known)) == 2
    assert row_keys({"n": np.array([1]), "words": words[:1]}, ()) == known[:1]


def test_answers_are_alike_but_for_rounding() -> None:
    y = np.array([1.0, 1000.0], np.float32)
    one = {"y": y, "text": "a"}

    assert alike(one, {"y": np.array([1.0, 1000.0001], np.float32), "text": "a"})
    assert not alike(one, {"y": np.array([1.0, 1010.0], np.float32), "text": "a"})
    assert not alike(one, {"y": y.astype(np.float64), "text": "a"})
    assert not alike(one, {"y": y, "text": "b"})
    assert not alike(one, {"y": y})


def test_filtered_answers_are_alike_but_for_rounding() -> None:
    assert alike([[3, 0.50001], [1, 0.2]], [[3, 0.5], [1, 0.2]])
    assert not alike([[3, 0.5], [1, 0.2]], [[4, 0.5], [1, 0.2]])
    assert alike("[[3,0.50001][1,0.2]]", "[[3,0.5][1,0.2]]")
    assert not alike("[[3,0.5][1,0.2]]", "[[3,0.6][1,0.2]]")


def test_what_was_learned_is_right_and_nothing_else() -> None:
    answers = Answers()
    seven, eight = (Result("a", {"y": np.array([value])}) for value in (7, 8))
    error = Result("a", {}, error=("InferenceFailed", ""))

    assert answers.learn("native", 0, seven)
    assert answers.learn("native", 0, seven)
    assert not answers.learn("native", 0, eight)
    assert not answers.learn("native", 1, error)
    assert answers.right("native", 0, seven)
    assert not answers.right("native", 0, eight)
    assert not answers.right("original", 0, seven)
