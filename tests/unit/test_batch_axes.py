"""The batch axis where the dimensions of a model have names."""

import pytest

from cluster_serving.node.models.batch_axes import Dims, axes_of_inputs, axes_of_outputs


@pytest.mark.parametrize(
    ("inputs", "axes"),
    [
        ([["N", 3, 224, 224]], [0]),
        ([["batch", "seq"], ["batch", "seq"], ["batch", 1, "seq", "seq"]], [0, 0, 0]),
        ([["batch_size", "T"], [2, "batch_size", 128], []], [0, 1, None]),  # a state, and a scalar
        ([["seq", "batch", 40]], [1]),
        ([["a", "T"], [2, "a", 64]], [0, 1]),  # the one name that all share
        ([["ids", "seq"], ["seq", "seq"]], [None, None]),
        ([[1, "seq"], [1, "seq"]], [0, 0]),  # in front of none: a length, and no batch
        ([[1, "N", 4], [1, 80, "N"]], [0, 0]),  # boxes
        ([["unk__1", 3], ["unk__2", 4]], [0, 0]),
        ([["queries", 64], ["keys", 64]], [None, None]),
        ([["anything", "T"]], [0]),
        ([[None, 3], [4, 3]], [0, 0]),
        ([[1, 3, 8, 8]], [0]),
        ([[]], [None]),
    ],
)
def test_axes_of_inputs(inputs: list[Dims], axes: list[int | None]) -> None:
    assert axes_of_inputs(inputs) == axes


@pytest.mark.parametrize(
    ("inputs", "outputs", "axes"),
    [
        ([["N", 3]], [["N", 10], [2, "N", 8]], [0, 1]),
        ([["batch", 3]], [["Gemmoutput_dim_0", 10]], [0]),  # exporters often do not see that it is the batch
        ([[1, "boxes", 4]], [["selected", 3]], [None]),
        ([["batch", 3]], [[]], [None]),
        ([[1, 3]], [[1, 10], [None, 4]], [0, 0]),
    ],
)
def test_axes_of_outputs(inputs: list[Dims], outputs: list[Dims], axes: list[int | None]) -> None:
    assert axes_of_outputs(outputs, inputs) == axes


def test_where_an_input_has_rows_elsewhere_only_a_name_tells_of_an_output() -> None:
    inputs: list[Dims] = [["batch", "T"], [2, "batch", 128]]
    outputs: list[Dims] = [["batch", 1], ["rows", 1], [None, None, None], ["Add_dim_0", "batch", "Add_dim_2"]]

    assert axes_of_outputs(outputs, inputs, rows_elsewhere=True) == [0, 0, None, 1]
