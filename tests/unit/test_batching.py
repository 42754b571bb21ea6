"""Decision whether the records of a model are rows of a batch, and on which axes the rows stand."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from cluster_serving.node.engines.batching import Batching, declare, rows_first, settle
from cluster_serving.node.engines.warm_up import warm_up
from cluster_serving.node.models.base import Array, LoadOptions, ModelError, TensorSpec

Predict = Callable[[dict[str, Array]], dict[str, Array]]
X = TensorSpec("x", "float32", (None, 2))
RATE = TensorSpec("rate", "float32", (), None)
STATE = TensorSpec("state", "float32", (2, None, 3), 1)
Y = TensorSpec("y", "float32", (None, 2))


class Model:
    """A model of these specs that computes this."""

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], predict: Predict) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._predict = predict

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Compute."""
        return self._predict(batch)


def same(batch: dict[str, Array]) -> dict[str, Array]:
    return {"y": batch["x"]}


def decided(model: Model, batching: str = "auto", **options: Any) -> Batching:
    chosen = LoadOptions(batching=batching, **options)
    return settle(model, declare(model, chosen), chosen)


def axes(model: Model) -> list[int | None]:
    return [spec.batch_axis for spec in (*model.inputs, *model.outputs)]


def test_rows_if_every_input_and_output_has_the_axis() -> None:
    model = Model([X], [Y], same)

    assert (decided(model), axes(model)) == (Batching("rows"), [0, 0])


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Model([X, RATE], [Y], same), "input 'rate' has no batch dimension"),
        (Model([RATE], [TensorSpec("y", "float32", (), None)], same), "no input has a batch dimension"),
        (
            Model([X], [Y], lambda batch: {"y": batch["x"].sum(keepdims=True)}),
            "output 'y' has shape [1, 1] for a batch of 2 rows",
        ),
        (Model([X], [Y], lambda batch: {"y": batch["x"].sum()}), "output 'y' has shape [] for a batch of 2 rows"),
        (
            Model([TensorSpec("x", "float32", (None, None))], [TensorSpec("y", "float32", ())], same),
            "output 'y' has no batch dimension",  # nothing sure to be valid can be made up
        ),
        (
            Model([TensorSpec("x", "float32", (3, 4)), TensorSpec("z", "float32", (4, 3))], [Y], same),
            "the inputs are made for different batch sizes, 'x' for batches of 3 and 'z' for batches of 4",
        ),
    ],
)
def test_else_none_and_why(model: Model, why: str) -> None:
    assert decided(model) == Batching("none", why)
    assert set(axes(model)) == {None}


def test_a_batch_of_one_size_has_rows_of_that_size() -> None:
    fixed = TensorSpec("x", "float32", (3, 2))
    rows, none = Model([fixed], [TensorSpec("y", "float32", (3, 2))], same), Model([fixed], [Y], lambda _: {"y": ONE})

    assert decided(rows) == Batching("rows")
    assert decided(none).why == "output 'y' has shape [1, 2] for a batch of 3 rows"


ONE = np.zeros((1, 2), np.float32)


def test_an_output_of_a_fixed_size_has_no_rows() -> None:
    two = Model([X], [TensorSpec("y", "float32", (2, 5))], lambda _: {"y": np.zeros((2, 5), np.float32)})

    assert decided(two).why == "output 'y' has shape [2, 5] for a batch of 2 rows"


def test_a_run_shows_the_axis_that_the_file_does_not_tell() -> None:
    unknown = TensorSpec("y", "float32", None, None)
    model = Model([X], [unknown], lambda batch: {"y": np.zeros((2, len(batch["x"]), 3), np.float32)})

    assert (decided(model), axes(model)) == (Batching("rows"), [0, 1])


def test_a_dimension_of_two_is_not_taken_for_two_rows() -> None:
    first_run = TensorSpec(
        "next", "float32", (None, 2, 3)
    )  # a backend may know no more than the shape of its first run
    model = Model([X], [first_run], lambda batch: {"next": np.zeros((2, len(batch["x"]), 3), np.float32)})
    pairs = Model([X], [Y], lambda batch: {"y": np.ones((len(batch["x"]), len(batch["x"])), np.float32)})

    assert decided(model) == Batching("rows")
    assert model.outputs == (TensorSpec("next", "float32", (2, None, 3), 1),)
    assert (decided(pairs), axes(pairs)) == (Batching("rows"), [0, 0])


def test_a_configuration_that_says_where_the_rows_are_means_rows() -> None:
    free = TensorSpec("state", "float32", (2, None, 3), 1)
    model = Model(
        [X, free, RATE],
        [Y, TensorSpec("next", "float32", None, None)],
        lambda batch: {**same(batch), "next": batch["state"]},
    )

    assert decided(model, inputs=("state float32 [2,N,3]",)) == Batching("rows")
    assert axes(model) == [0, 1, None, 0, 1]


def test_a_configured_axis_makes_no_rows_of_an_output_for_the_whole_batch() -> None:
    model = Model([X], [TensorSpec("y", "float32", None)], lambda batch: {"y": batch["x"].mean()})

    assert decided(model, inputs=("x float32 [N,2]",)).why == "output 'y' has shape [] for a batch of 2 rows"


def test_rows_may_be_wanted_where_inputs_are_shared() -> None:
    model = Model([X, RATE], [Y], same)

    assert (decided(model, "rows"), axes(model)) == (Batching("rows"), [0, None, 0])


def test_outputs_have_the_axis_that_is_configured() -> None:
    text = TensorSpec("words", "str", (None,))
    model = Model([text], [TensorSpec("next", "float32", None, None)], same)

    assert decided(model, outputs=("next float32 [2,N,128]",)) == Batching("rows")
    assert model.outputs == (TensorSpec("next", "float32", (2, None, 128), 1),)


def test_none_takes_calls_alone() -> None:
    model = Model([TensorSpec("x", "float32", (4, 2))], [Y], same)

    assert (decided(model, "none"), axes(model)) == (Batching("none"), [None, None])


@pytest.mark.parametrize(
    ("inputs", "kept"),
    [((X,), 0), ((X, STATE), 0), ((TensorSpec("x", "float32", (4, 2)),), 0), ((X, RATE), None), ((), None)],
)
def test_batches_are_calls_of_a_model_that_may_know_rows(inputs: tuple[TensorSpec, ...], kept: int | None) -> None:
    model = Model(inputs, [Y], same)

    assert decided(model, "batches") == Batching("none")
    assert model.outputs[0].batch_axis == kept
    assert [spec.batch_axis is None for spec in model.inputs] == [kept is None] * len(inputs)


def test_whole_numbers_may_be_sizes_that_no_run_can_make_up() -> None:
    def fails(batch: dict[str, Array]) -> dict[str, Array]:
        raise ValueError("no such shape")

    sizes = Model([TensorSpec("x", "int64", (None, 2))], [Y], fails)
    floats = Model([X], [Y], fails)

    assert decided(sizes) == Batching("none", "it does not run on 2 rows of zeros or ones")
    assert decided(floats) == Batching("rows")
    with pytest.raises(ModelError, match="the model fails on a batch of 1 rows of zeros: no such shape"):
        warm_up(floats, 2)


def test_batches_are_arranged_around_the_call() -> None:
    seen: list[dict[str, Array]] = []

    def predict(batch: dict[str, Array]) -> dict[str, Array]:
        seen.append(batch)
        return {"next": batch["state"] + 1, "used": np.asarray(batch["rate"])}

    model = Model(
        [X, STATE, RATE],
        [TensorSpec("next", "float32", (2, None, 3), 1), TensorSpec("used", "float32", (), None)],
        predict,
    )
    state = np.arange(24, dtype=np.float32).reshape(4, 2, 3)

    found = rows_first(model)({"x": np.zeros((4, 2), np.float32), "state": state, "rate": np.full(4, 8, np.float32)})

    [batch] = seen
    assert [array.shape for array in batch.values()] == [(4, 2), (2, 4, 3), ()]
    assert all(array.flags.c_contiguous for array in batch.values())
    np.testing.assert_array_equal(found["next"], state + 1)
    assert found["used"].tolist() == [8, 8, 8, 8]


def test_a_model_with_all_rows_in_front_is_called_as_it_is() -> None:
    model = Model([X], [Y], same)

    assert rows_first(model) == model.run


def test_rows_that_are_wanted_must_be_found() -> None:
    text = TensorSpec("words", "str", (None,))  # nothing can be made up
    unclear = TensorSpec("next", "float32", (None, None, 3), None)
    model = Model([text], [Y, unclear], same)

    with pytest.raises(
        ModelError, match=r"say it in modelOutputs, as in next float32 \[N,\?,3\], or set batching: none"
    ):
        decided(model, "rows")
    assert decided(model, "rows", outputs=("y", "next float32 [2,N,3]")) == Batching("rows")
    assert axes(model) == [0, 0, 1]
    state = TensorSpec("state", "float32", (2, None, 3))
    with pytest.raises(ModelError, match=r"say it in modelInputs, as in state float32 \[2,N,3\]"):
        decided(Model([X, state], [Y], same), "rows")


def test_wanted_rows_need_no_run_that_can_be_made_up() -> None:
    def fails(batch: dict[str, Array]) -> dict[str, Array]:
        raise ValueError("no such rate")

    model = Model([X, TensorSpec("rate", "int64", (), None)], [Y], fails)

    assert decided(model, "rows") == Batching("rows")
    assert warm_up(model, 4) == 0


def test_rows_of_an_input_without_a_shape_are_warned_about() -> None:
    with capture_logs() as logs:
        decided(Model([TensorSpec("x", "float32", None)], [Y], same))
        decided(Model([X], [Y], same))

    assert [(each["event"], each["inputs"]) for each in logs] == [
        ("a tensor with a batch dimension is taken for one row: state the shapes in modelInputs", ["x"])
    ]
