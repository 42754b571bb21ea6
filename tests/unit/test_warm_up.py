"""A model runs on batches of its own before any request meets it."""

from collections.abc import Callable

import numpy as np
import pytest

from cluster_serving.node.engines.batching import declare
from cluster_serving.node.engines.warm_up import trial, warm_up
from cluster_serving.node.models.base import Array, LoadOptions, ModelError, TensorSpec

ROWS_OF_4 = TensorSpec("x", "float32", (None, 4))


class Counting:
    """A model that adds one, and remembers how many rows it got."""

    def __init__(self, spec: TensorSpec, accepts: Callable[[Array], bool] = lambda x: True) -> None:
        self.inputs: tuple[TensorSpec, ...] = (spec,)
        self.outputs: tuple[TensorSpec, ...] = (spec,)
        self.rows: list[int] = []
        self._accepts = accepts

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Add one."""
        x = batch["x"]
        if not self._accepts(x):
            raise IndexError("index out of range")
        self.rows.append(len(x))
        return {"x": x + 1}


def test_every_batch_size_is_met_once() -> None:
    model = Counting(ROWS_OF_4)

    row_output_bytes = warm_up(model, 6)

    assert row_output_bytes == 4 * 4
    assert model.rows[:4] == [1, 2, 4, 6]
    assert sorted(model.rows) == [1, 2, 3, 4, 5, 6]


def test_a_fixed_batch_is_the_only_one() -> None:
    model = Counting(TensorSpec("x", "float32", (3, 4)))

    warm_up(model, 6)

    assert model.rows == [3]


@pytest.mark.parametrize("shape", [(None, None), None])
def test_no_shape_is_guessed(shape: tuple[int | None, ...] | None) -> None:
    model = Counting(TensorSpec("x", "float32", shape))

    assert warm_up(model, 6) == 0

    assert model.rows == []


def test_indices_may_count_from_one() -> None:
    model = Counting(ROWS_OF_4, lambda x: bool(np.all(x > 0)))

    tried = trial(model, 2)

    assert tried is not None
    np.testing.assert_array_equal(tried.inputs["x"], np.ones((2, 4)))
    np.testing.assert_array_equal(tried.outputs["x"], np.full((2, 4), 2))


def test_a_model_that_cannot_run_says_why() -> None:
    model = Counting(ROWS_OF_4, lambda x: False)

    with pytest.raises(ModelError, match="the model fails on a batch of 1 rows of zeros: index out of range"):
        warm_up(model, 6)


def test_inputs_made_for_different_batch_sizes() -> None:
    model = Counting(TensorSpec("x", "float32", (4, 2)), lambda x: True)
    model.inputs += (TensorSpec("y", "float32", (1, 2)),)

    with pytest.raises(
        ModelError, match="different batch sizes, 'y' for batches of 1 and 'x' for batches of 4: export"
    ):
        declare(model, LoadOptions(batching="rows"))
