"""Models that are wrong in a batch: found when they are loaded, or by the first records, and served row by row."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from bench.in_process import Serving
from onnx import TensorProto, helper, numpy_helper

from cluster_serving.node.engines.kept_proofs import KeptProofs
from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.detect import detect
from cluster_serving.node.models.fingerprint import fingerprint

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
ROWS = np.random.default_rng(5).random((7, 3, 4)).astype(np.float32)


def value(name: str, dims: Sequence[int | str], dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, dims)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def save(path: Path, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], **constants: Any) -> Path:
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _first_row_only(given: str, result: str) -> list[Any]:
    """Keep row 0 of a matrix, and set the further rows to zero."""
    return [
        node("Shape", given, "rows", end=1),
        node("Squeeze", "rows", "count"),
        node("Range", "zero count one", "places"),
        node("Equal", "places zero", "is_first"),
        node("Cast", "is_first", "factor", to=FLOAT),
        node("Unsqueeze", "factor axis1", "factors"),
        node("Mul", f"{given} factors", result),
    ]


FIRST_ROW = {"zero": np.int64(0), "one": np.int64(1), "axis1": np.array([1])}


def zeros_after_row_0(path: Path) -> Path:
    """Return a detector that was made for one image."""
    nodes = [node("ReduceSum", "x axis1", "sums", keepdims=0), *_first_row_only("sums", "y")]
    return save(path, nodes, [value("x", ["N", 3, 4])], [value("y", ["N", 4])], **FIRST_ROW)


def nothing_in_noise(path: Path) -> Path:
    """Return a detector that was made for one image, and finds nothing below 100."""
    nodes = [
        node("Greater", "x limit", "found"),
        node("Where", "found x nothing", "seen"),
        node("ReduceSum", "seen axis1", "sums", keepdims=0),
        *_first_row_only("sums", "y"),
    ]
    constants = {**FIRST_ROW, "limit": np.float32(100), "nothing": np.float32(0)}
    return save(path, nodes, [value("x", ["N", 3, 4])], [value("y", ["N", 4])], **constants)


def normalized_over_the_batch(path: Path) -> Path:
    """Return a network exported in training mode: batch normalization with the statistics of the batch itself."""
    nodes = [
        node("ReduceMean", "x", "mean", axes=[0, 2]),
        node("Sub", "x mean", "centred"),
        node("Mul", "centred centred", "squares"),
        node("ReduceMean", "squares", "variance", axes=[0, 2]),
        node("Add", "variance epsilon", "positive"),
        node("Sqrt", "positive", "deviation"),
        node("Div", "centred deviation", "y"),
    ]
    return save(path, nodes, [value("x", ["N", 3, 4])], [value("y", ["N", 3, 4])], epsilon=np.float32(1e-5))


def less_the_mean_of_the_batch(path: Path) -> Path:
    """Return a model that subtracts the mean of all rows."""
    nodes = [node("ReduceMean", "x", "mean", axes=[0]), node("Sub", "x mean", "y")]
    return save(path, nodes, [value("x", ["N", 3, 4])], [value("y", ["N", 3, 4])])


def with_noise(path: Path) -> Path:
    """Return a model that draws noise for the whole batch."""
    nodes = [node("RandomNormalLike", "x", "noise", seed=1.0), node("Add", "x noise", "y")]
    return save(path, nodes, [value("x", ["N", 3, 4])], [value("y", ["N", 3, 4])])


def best_boxes_of_all_rows(path: Path) -> Path:
    """Return a detector whose boxes are suppressed by better boxes of all rows. It gives the score of each box, or 0."""
    nodes = [
        node("Reshape", "x flat", "all"),  # 5 numbers for each box
        node("Split", "all parts", "boxes score", axis=2),
        node("Transpose", "score", "scores", perm=[0, 2, 1]),
        node("NonMaxSuppression", "boxes scores most overlap", "kept"),
        node("Gather", "kept third", "places", axis=1),
        node("Shape", "score", "size", start=1),
        node("Reshape", "score column", "values"),
        node("Gather", "values places", "each", axis=0),
        node("Reshape", "each column", "best"),
        node("Mul", "values zeros", "none"),
        node("ScatterND", "none places best", "found"),
        node("Reshape", "found rows", "y"),
    ]
    constants = {
        "flat": np.array([1, -1, 5]),
        "parts": np.array([4, 1]),
        "most": np.array([100]),
        "overlap": np.array([0.5], np.float32),
        "third": np.array([2]),
        "column": np.array([-1]),
        "zeros": np.float32(0),
        "rows": np.array([-1, 3]),
    }
    return save(path, nodes, [value("x", ["N", 3, 5])], [value("y", ["N", 3])], **constants)


def encoder_that_ignores_its_mask(path: Path) -> Path:
    """Return the mean of a text's words, over the length of the longest text of the batch."""
    nodes = [
        node("Cast", "ids", "words", to=FLOAT),
        node("Cast", "mask", "weights", to=FLOAT),
        node("Mul", "words weights", "masked"),
        node("ReduceSum", "masked axis1", "sums"),
        node("ReduceSum", "weights axis1", "lengths"),
        node("ReduceMax", "lengths", "longest"),
        node("Div", "sums longest", "y"),
    ]
    inputs = [value("ids", ["N", "T"], INT64), value("mask", ["N", "T"], INT64)]
    return save(path, nodes, inputs, [value("y", ["N", 1])], axis1=np.array([1]))


def texts() -> list[dict[str, Any]]:
    generator = np.random.default_rng(7)
    return [
        {"ids": generator.integers(1, 30, 8), "mask": (np.arange(8) < length).astype(np.int64)}
        for length in (8, 3, 5, 1, 8, 2, 7)
    ]


def same_boxes() -> list[dict[str, Any]]:
    """Return images with the same three boxes apart from each other, and other scores."""
    boxes = np.array([[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]], np.float32)
    return [{"x": np.column_stack([boxes, scores]).astype(np.float32)} for scores in ROWS[:, :, 0]]


RECORDS: list[dict[str, Any]] = [{"x": row} for row in ROWS]
WRONG: dict[Callable[[Path], Path], tuple[list[dict[str, Any]], str]] = {
    zeros_after_row_0: (RECORDS, r"none: row \d differs by .*"),
    nothing_in_noise: ([{"x": 100 + 900 * row} for row in ROWS], "rows"),
    normalized_over_the_batch: (RECORDS, r"none: row \d differs by .*"),
    less_the_mean_of_the_batch: (RECORDS, r"none: row \d differs by 1"),
    best_boxes_of_all_rows: (same_boxes(), r"rows \(checked: .*\)"),
    encoder_that_ignores_its_mask: (texts(), "rows"),
}
"""Records for each model, and the batching that made-up rows show."""


@pytest.mark.parametrize("make", WRONG, ids=lambda make: make.__name__)
def test_a_model_that_is_wrong_in_a_batch_answers_each_row_as_alone(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = make(tmp_path / "model.onnx")
    records, at_load = WRONG[make]
    session: Any = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    alone: list[Any] = [
        session.run(None, {name: array[np.newaxis] for name, array in record.items()})[0] for record in records
    ]
    together = session.run(None, {name: np.stack([record[name] for record in records]) for name in records[0]})[0]
    assert not np.allclose(np.concatenate(alone), together)

    with Serving(path) as serving:
        for _ in range(2):
            for result, expected in zip(serving.results(records), alone, strict=True):
                np.testing.assert_array_equal(next(iter(result.outputs.values())), expected[0])
        [batch] = serving.predict({name: np.stack([record[name] for record in records]) for name in records[0]})

    np.testing.assert_array_equal(batch, np.concatenate(alone))
    assert re.fullmatch(at_load, serving.batching.described())
    assert serving.proof is not None
    assert serving.proof.fault.startswith("row ")


def test_noise_is_called_noise(tmp_path: Path) -> None:
    with Serving(with_noise(tmp_path / "model.onnx")) as serving:
        assert re.fullmatch(r"none: row 0 differs by \d.* from run to run", serving.batching.described())


def test_a_fault_that_the_first_records_show_holds_from_the_next_start_on(tmp_path: Path) -> None:
    path = nothing_in_noise(tmp_path / "model.onnx")
    records, _ = WRONG[nothing_in_noise]
    kept = KeptProofs(str(tmp_path / "proofs"), "conditions", lambda: fingerprint(detect(str(path))))
    with Serving(path, kept=kept) as serving:
        serving.results(records)
    assert serving.proof is not None

    with Serving(path, kept=kept) as again:
        results = again.results(records)
    with Serving(path, LoadOptions(batching="rows"), kept=kept) as wanted:
        wanted.results(records)
    path.write_bytes(path.read_bytes().replace(b"graph", b"Graph"))
    with Serving(path, kept=kept) as changed:
        pass

    assert serving.batching.described() == "rows"
    assert again.batching.described() == f"none: {serving.proof.fault}"
    for record, result in zip(records, results, strict=True):
        np.testing.assert_allclose(next(iter(result.outputs.values())), record["x"].sum(axis=0), rtol=1e-6)
    assert wanted.batching.described() == f"rows ({serving.proof.fault})"
    assert changed.batching.described() == "rows"


def test_a_kept_proof_of_rows_is_checked_by_the_first_records(tmp_path: Path) -> None:
    path = best_boxes_of_all_rows(tmp_path / "model.onnx")
    kept = KeptProofs(str(tmp_path / "proofs"), "conditions", lambda: fingerprint(detect(str(path))))
    with Serving(path, kept=kept) as first:
        pass

    with Serving(path, kept=kept) as serving:
        serving.results(same_boxes())
    with Serving(path, kept=kept) as last:
        pass

    assert first.batching.described() == serving.batching.described()
    assert first.batching.described().startswith("rows (checked: ")
    assert last.batching.described().startswith("none: row ")


def test_rows_that_are_wanted_ride_together_all_the_same(tmp_path: Path) -> None:
    path = less_the_mean_of_the_batch(tmp_path / "model.onnx")
    with Serving(path, LoadOptions(batching="rows")) as serving:
        results = serving.results(RECORDS)

    assert re.fullmatch(r"rows \(row \d differs by \d.*\)", serving.batching.described())
    np.testing.assert_allclose(next(iter(results[0].outputs.values())), ROWS[0] - ROWS.mean(axis=0), atol=1e-6)


def test_a_model_of_rows_is_checked_twice(tmp_path: Path) -> None:
    path = save(
        tmp_path / "model.onnx",
        [node("MatMul", "x w", "y")],
        [value("x", ["N", 64])],
        [value("y", ["N", 64])],
        w=np.random.default_rng(1).random((64, 64)).astype(np.float32),
    )
    with Serving(path) as serving:
        at_load = serving.proof
        serving.results([{"x": np.full(64, row, np.float32)} for row in range(5)])

    assert at_load is not None
    assert at_load.difference < 1e-5
    assert not at_load.fault
    assert serving.batching.described().startswith("rows (checked: largest difference ")
    assert serving.proof is not None
    assert serving.proof is not at_load
    assert not serving.proof.fault


ONE_ROW = """
class Model:
    inputs = {"x": "float32 [N,3,4]"}
    outputs = {"y": "float32 [N,12]"}

    def predict(self, batch):
        return {"y": batch["x"].reshape(1, 12)}
"""


def test_a_model_that_takes_one_row_only_is_served(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(ONE_ROW)
    with Serving(path) as serving:
        results = serving.results(RECORDS)

    assert serving.batching.described().startswith("none: 4 rows fail together: cannot reshape array of size 48")
    for row, result in zip(ROWS, results, strict=True):
        np.testing.assert_array_equal(next(iter(result.outputs.values())), row.ravel())


def test_a_batch_of_one_size_is_checked_in_that_size(tmp_path: Path) -> None:
    nodes = [node("ReduceMean", "x", "mean", axes=[0]), node("Sub", "x mean", "y")]
    path = save(tmp_path / "model.onnx", nodes, [value("x", [8, 3])], [value("y", [8, 3])])
    with Serving(path) as serving:
        results = serving.results([{"x": row[:, 0]} for row in ROWS])

    assert serving.batching.one_by_one
    for row, result in zip(ROWS, results, strict=True):
        np.testing.assert_allclose(next(iter(result.outputs.values())), row[:, 0] * 7 / 8, rtol=1e-6)


ROWS_OF_BATCH = """
import numpy

class Model:
    inputs = {"x": "float32 [N,3,4]"}
    outputs = {"rows": "int64 [N]"}

    def predict(self, batch):
        return {"rows": numpy.full(len(batch["x"]), len(batch["x"]))}
"""


def test_deterministic_batches_have_one_size(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(ROWS_OF_BATCH)
    with Serving(path, LoadOptions(batching="rows"), deterministic=True) as serving:
        results = serving.results(RECORDS)
        [one] = serving.predict(RECORDS[0])
        [batch] = serving.predict({"x": ROWS})

    assert serving.batching.described() == "rows (row 0 differs: another whole number, text or NaN)"
    assert {result.outputs["rows"].item() for result in results} == {one.item()} == set(batch.tolist()) == {32}
