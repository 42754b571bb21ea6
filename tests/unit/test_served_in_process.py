"""Records through the code of reader, worker and writer: whole calls, other batch axes, shared inputs, sequences, maps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench.in_process import Serving
from onnx import TensorProto, helper

from cluster_serving.node.models.base import LoadOptions

FLOAT = TensorProto.FLOAT


def value(name: str, dims: Sequence[int | str] | None, dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, dims)


def save(path: Path, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Path:
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """A step of a stream: x [N,T] times a rate, and a state [2,N,3] that grows."""
    nodes = [
        helper.make_node("Mul", ["x", "rate"], ["y"]),
        helper.make_node("Add", ["state", "state"], ["next"]),
    ]
    inputs = [value("x", ["N", "T"]), value("state", [2, "N", 3]), value("rate", [])]
    return save(tmp_path / "model.onnx", nodes, inputs, [value("y", ["N", "T"]), value("next", [2, "N", 3])])


def record(row: int, rate: float) -> dict[str, Any]:
    state = np.arange(6, dtype=np.float32).reshape(2, 3) + row
    return {"x": np.full(4, row, np.float32), "state": state, "rate": np.float32(rate)}


def test_a_scalar_makes_calls_of_records(stream: Path) -> None:
    call = {"x": np.ones((1, 4), np.float32), "state": np.ones((2, 1, 3), np.float32), "rate": np.float32(3)}
    with Serving(stream) as serving:
        y, state = serving.predict(call)

    assert serving.batching.described() == "none: input 'rate' has no batch dimension"
    assert (y.tolist(), state.shape) == ([[3, 3, 3, 3]], (2, 1, 3))


def test_records_of_equal_shared_inputs_ride_together(stream: Path) -> None:
    with Serving(stream, LoadOptions(batching="rows")) as serving:
        results = serving.results([record(row, 8 if row % 3 else 16) for row in range(9)])

    assert sorted(serving.batches) == [3, 6]
    for row, result in enumerate(results):
        y, state = result.outputs.values()
        np.testing.assert_array_equal(y, np.full(4, row * (8 if row % 3 else 16)))
        np.testing.assert_array_equal(state, 2 * record(row, 0)["state"])


def test_a_batch_of_one_and_a_batch_of_several_keep_their_axis(stream: Path) -> None:
    with Serving(stream, LoadOptions(batching="rows")) as serving:
        for rows in (1, 5):
            state = np.random.default_rng(1).random((2, rows, 3)).astype(np.float32)
            y, after = serving.predict({"x": np.ones((rows, 4), np.float32), "state": state, "rate": np.float32(2)})

            assert y.shape == (rows, 4)
            np.testing.assert_array_equal(after, 2 * state)


def test_sequences_are_lists_of_arrays(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, None)
    joined = helper.make_tensor_sequence_value_info("t", FLOAT, None)
    nodes = [helper.make_node("SequenceInsert", ["s", "x"], ["t"])]
    path = save(tmp_path / "model.onnx", nodes, [sequence, value("x", [2])], [joined])
    given = [np.zeros((1, 3), np.float32), np.ones(2, np.float32)]
    with Serving(path) as serving:
        [found] = serving.predict({"s": {"sequence": given}, "x": np.full(2, 7, np.float32)})
        [failed] = serving.results([{"s": np.zeros(2, np.float32), "x": np.zeros(2, np.float32)}])

    assert [(each.dtype.name, each.tolist()) for each in found] == [
        ("float32", [[0, 0, 0]]),
        ("float32", [1, 1]),
        ("float32", [7, 7]),
    ]
    assert failed.error is not None
    assert "input 's' takes a sequence(float32), not a tensor of float32" in failed.error[1]


def test_a_classifier_gives_each_row_its_map(tmp_path: Path) -> None:
    maps = onnx.ValueInfoProto(name="probabilities")
    map_type = maps.type.sequence_type.elem_type.map_type
    map_type.key_type = TensorProto.STRING
    map_type.value_type.tensor_type.elem_type = FLOAT
    map_type.value_type.tensor_type.shape.SetInParent()
    nodes = [helper.make_node("ZipMap", ["x"], ["probabilities"], domain="ai.onnx.ml", classlabels_strings=["a", "b"])]
    path = save(tmp_path / "model.onnx", nodes, [value("x", ["N", 2])], [maps])
    with Serving(path) as serving:
        rows = serving.results([{"x": np.array([0.25, row], np.float32)} for row in range(3)])
        [batch] = serving.predict({"x": np.array([[1, 2], [3, 4]], np.float32)})
        [one] = serving.predict({"x": np.array([[1, 2]], np.float32)})

    assert serving.batching.described() == "rows (checked: largest difference 0)"
    assert [result.outputs for result in rows] == [{"probabilities": {"a": 0.25, "b": float(row)}} for row in range(3)]
    assert batch == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert one == [{"a": 1, "b": 2}]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3)])
def test_tensors_of_any_shape_go_through_as_they_are(tmp_path: Path, shape: tuple[int, ...]) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    path = save(tmp_path / "model.onnx", nodes, [value("x", None)], [value("y", None)])
    x = np.random.default_rng(2).random(shape).astype(np.float32)
    with Serving(path) as serving:
        [y] = serving.predict({"x": x})

    assert (serving.batching.mode, y.shape, y.dtype) == ("none", shape, x.dtype)
    np.testing.assert_array_equal(y, x)


def test_a_batch_for_a_model_of_one_row_and_a_shared_input(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "rate"], ["y"])]
    path = save(tmp_path / "model.onnx", nodes, [value("x", [1, 2]), value("rate", [])], [value("y", [1, 2])])
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    with Serving(path, LoadOptions(batching="rows")) as serving:
        [y] = serving.predict({"x": x, "rate": np.float32(3)})
        [row] = serving.predict({"x": x[1], "rate": np.float32(3)})

    np.testing.assert_array_equal(y, 3 * x)
    np.testing.assert_array_equal(row, 3 * x[1])


@pytest.mark.parametrize("rows", [4, "N"])
def test_batches_are_calls_and_a_record_without_the_batch_dimension_is_one_of_a_row(
    tmp_path: Path, rows: int | str
) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    path = save(tmp_path / "model.onnx", nodes, [value("x", [rows, 3, 2, 2])], [value("y", [rows, 3, 2, 2])])
    x = np.arange(108, dtype=np.float32).reshape(9, 3, 2, 2)
    with Serving(path, LoadOptions(batching="batches")) as serving:
        for batch in (x, x[:4], x[:1], x[0]):
            [y] = serving.predict({"x": batch})
            np.testing.assert_array_equal(y, -batch)
        found = [next(iter(result.outputs.values())) for result in serving.results([{"x": row} for row in x])]
        [image] = serving.predict({"x": {"image": np.ones((2, 2, 3), np.uint8)}})

    assert serving.batching.described() == "none"
    np.testing.assert_array_equal(found, -x)
    assert image.shape == (3, 2, 2)


def test_an_image_of_a_call_has_the_batch_dimension(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    path = save(tmp_path / "model.onnx", nodes, [value("x", ["N", 3, 2, 2])], [value("y", ["N", 3, 2, 2])])
    with Serving(path, LoadOptions(batching="none")) as serving:
        [y] = serving.predict({"x": {"image": np.ones((2, 2, 3), np.uint8)}})
        [row] = serving.results([{"x": np.ones((3, 2, 2), np.float32)}])

    assert y.shape == (1, 3, 2, 2)
    assert row.error is not None
