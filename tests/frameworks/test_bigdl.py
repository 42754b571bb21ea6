"""BigDL models are rebuilt from their definition: networks, graphs, names, weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster_serving.node.models.base import Array, LoadOptions, TensorSpec
from cluster_serving.node.models.bigdl.backend import BigdlBackend
from cluster_serving.node.models.bigdl.backend import load as load_bigdl
from cluster_serving.node.models.detect import detect
from support.bigdl import QUANTIZED, ModelFile

WEIGHT = np.array([[1, -2, 3], [-1, 2, 0.5]], np.float32)
BIAS = np.array([0.5, -0.25], np.float32)
ROWS = np.array([[1, 2, 3], [-1, 0, 1], [0.5, 4, -2]], np.float32)


def load_from(path: Path, *inputs: str, precision: str = "f32") -> BigdlBackend:
    return load_bigdl(detect(str(path)), LoadOptions(inputs=inputs, precision=precision))


def relu(values: NDArray[np.float32]) -> Array:
    return np.maximum(values, 0)


@pytest.fixture
def file() -> ModelFile:
    return ModelFile()


def test_views_of_one_shared_storage_are_the_weights(tmp_path: Path, file: ModelFile) -> None:
    """A trained model keeps all weights in one storage; the weight lies transposed in it here."""
    shared = file.storage(np.concatenate([[9], WEIGHT.T.ravel(), BIAS]))
    parameters = [file.tensor(shared, (2, 3), (1, 2), offset=2), file.tensor(shared, (2,), offset=8)]
    root = file.module("Sequential", file.module("Linear", parameters=parameters), file.module("ReLU"))
    model = load_from(file.save(tmp_path / "shared.model", root))

    for rows in (3, 1):
        answer = model.run({"input": ROWS[:rows]})
        np.testing.assert_allclose(answer["output"], relu(ROWS[:rows] @ WEIGHT.T + BIAS), atol=1e-6)
        assert list(answer) == ["output"]
    assert model.inputs == (TensorSpec("input", "float32", None),)
    assert model.outputs == (TensorSpec("output", "float32", None),)


def two_way_graph(file: ModelFile, first: str, second: str) -> Any:
    """Gives the second half of a Linear layer of the first input plus the second input, and the first half."""
    nodes = [
        file.module("CAddTable", name="sum", predecessors=["halves", second]),
        file.module("Identity", name="low", predecessors=["halves"]),
        file.module("BifurcateSplitTable", name="halves", predecessors=["fc"], attributes={"dimension": 2}),
        file.linear(WEIGHT, BIAS, name="fc", predecessors=[first]),
        file.module("Input", name=second),
        file.module("Input", name=first),
    ]
    edges = {"sum": {"halves": 2, second: -1}, "low": {"halves": 1}, "halves": {"fc": -1}, "fc": {first: -1}}
    return file.graph(*nodes, inputs=[first, second], outputs=["sum", "low"], **edges)


def test_a_graph_takes_and_gives_several_tensors_in_its_order(tmp_path: Path, file: ModelFile) -> None:
    model = load_from(file.save(tmp_path / "graph.model", two_way_graph(file, "left", "right")))
    hidden = ROWS @ WEIGHT.T + BIAS
    right = np.full((3, 1), 10, np.float32)

    answer = model.run({"left": ROWS, "right": right})

    assert [spec.name for spec in model.inputs] == ["left", "right"]
    assert list(answer) == ["output1", "output2"]
    np.testing.assert_allclose(answer["output1"], hidden[:, 1:] + right, atol=1e-6)
    np.testing.assert_allclose(answer["output2"], hidden[:, :1], atol=1e-6)


def test_inputs_with_names_that_bigdl_made_up_are_numbered(tmp_path: Path, file: ModelFile) -> None:
    model = load_from(file.save(tmp_path / "graph.model", two_way_graph(file, "3f09c1aa", "77e2b0c4")))

    assert [spec.name for spec in model.inputs] == ["input1", "input2"]


def test_the_configuration_may_say_what_the_inputs_are(tmp_path: Path, file: ModelFile) -> None:
    path = file.save(tmp_path / "fc.model", file.module("Sequential", file.linear(WEIGHT)))
    model = load_from(path, "row int64 [N,3]")

    answer = model.run({"row": ROWS.astype(np.int64)})

    assert model.inputs == (TensorSpec("row", "int64", (None, 3)),)
    np.testing.assert_allclose(answer["output"], ROWS.astype(np.int64) @ WEIGHT.T, atol=1e-6)


def test_a_model_that_starts_with_a_table_takes_any_number_of_tensors(tmp_path: Path, file: ModelFile) -> None:
    model = load_from(file.save(tmp_path / "sum.model", file.module("Sequential", file.module("CAddTable"))))

    assert model.inputs == ()
    for count in (1, 2, 4):
        np.testing.assert_allclose(model.run({f"x{at}": ROWS for at in range(count)})["output"], count * ROWS)


def test_a_keras_shell_runs_what_it_has_built_and_knows_its_shape(tmp_path: Path, file: ModelFile) -> None:
    dense = file.module(
        "com.intel.analytics.zoo.pipeline.api.keras.layers.Dense",
        file.linear(WEIGHT),
        attributes={"is_keras_module": True, "activation": file.module("Tanh")},
    )
    dense.attr["inputShape"].shape.shapeValue.extend([3])
    root = file.module("com.intel.analytics.zoo.pipeline.api.keras.models.Sequential", file.module("Sequential", dense))
    model = load_from(file.save(tmp_path / "keras.model", root))

    assert model.inputs == (TensorSpec("input", "float32", (None, 3)),)
    np.testing.assert_allclose(model.run({"input": ROWS})["output"], ROWS @ WEIGHT.T, atol=1e-6)


def test_weights_in_a_file_of_their_own(tmp_path: Path, file: ModelFile) -> None:
    root = file.module("Sequential", file.linear(WEIGHT, BIAS))
    file.save(tmp_path / "split.model", root, tmp_path / "split.bin")

    np.testing.assert_allclose(load_from(tmp_path).run({"input": ROWS})["output"], ROWS @ WEIGHT.T + BIAS, atol=1e-6)


def test_int8_weights_are_scaled_by_row(tmp_path: Path, file: ModelFile) -> None:
    scale = np.abs(WEIGHT).max(1, keepdims=True) / 127
    codes = np.round(WEIGHT / scale).astype(np.int8)
    rows = [WEIGHT.max(1), WEIGHT.min(1), WEIGHT.sum(1)]
    storage = file.storage(np.concatenate(rows), codes.tobytes())
    linear = file.module(
        "com.intel.analytics.bigdl.nn.quantized.Linear",
        attributes={"weight": file.tensor(storage, (2, 3), offset=0, kind=QUANTIZED)},
    )
    linear.bias.MergeFrom(type(linear.bias)(**file.weights(BIAS)[0]))
    model = load_from(file.save(tmp_path / "int8.model", file.module("Sequential", linear)))

    np.testing.assert_allclose(model.run({"input": ROWS})["output"], ROWS @ (codes * scale).T + BIAS, atol=1e-5)


def test_bfloat16_gives_nearly_the_same_as_float32(tmp_path: Path, file: ModelFile) -> None:
    path = file.save(tmp_path / "fc.model", file.module("Sequential", file.linear(WEIGHT, BIAS)))

    answer = load_from(path, precision="bf16").run({"input": ROWS})["output"]

    assert answer.dtype == np.float32
    np.testing.assert_allclose(answer, ROWS @ WEIGHT.T + BIAS, atol=0.1)


def test_what_is_passed_on_is_not_the_memory_of_the_input(tmp_path: Path, file: ModelFile) -> None:
    model = load_from(file.save(tmp_path / "same.model", file.module("Sequential", file.module("Identity"))))
    batch = ROWS.copy()
    batch.flags.writeable = False

    answer = model.run({"input": batch})["output"]

    assert not np.may_share_memory(answer, batch)
    np.testing.assert_array_equal(answer, ROWS)


@pytest.mark.parametrize("as_graph", [False, True])
def test_a_convolution_takes_in_the_layers_after_it(tmp_path: Path, file: ModelFile, as_graph: bool) -> None:
    """Normalization and ReLU become part of the convolution; what else takes its output still gets it bare."""
    rng = np.random.default_rng(5)
    kernel, bias = rng.normal(size=(1, 4, 3, 1, 1)), rng.normal(size=4)
    weight, shift, mean = rng.normal(size=(3, 4))
    variance = rng.uniform(0.5, 2, 4)
    numbers = {"nInputPlane": 3, "nOutputPlane": 4, "kernelW": 1, "kernelH": 1}
    running_mean, running_variance = file.weights(mean, variance)
    statistics = {"runningMean": running_mean, "runningVar": running_variance}
    layers = [
        file.module("SpatialConvolution", name="a", attributes=numbers, parameters=file.weights(kernel, bias)),
        file.module(
            "SpatialBatchNormalization",
            name="b",
            predecessors=["a"],
            attributes=statistics,
            parameters=file.weights(weight, shift),
        ),
        file.module("ReLU", name="c", predecessors=["b"]),
    ]
    root = file.graph(*layers, inputs=["a"], outputs=["c", "b"]) if as_graph else file.module("Sequential", *layers)
    images = rng.normal(size=(2, 3, 2, 5)).astype(np.float32)

    answer = load_from(file.save(tmp_path / "cnn.model", root)).run({"input": images})

    mixed = np.einsum("oi,nihw->nohw", kernel[0, :, :, 0, 0], images) + bias.reshape(4, 1, 1)
    scaled = (mixed - mean.reshape(4, 1, 1)) * (weight / np.sqrt(variance + 1e-5)).reshape(4, 1, 1)
    expected = scaled + shift.reshape(4, 1, 1)
    np.testing.assert_allclose(next(iter(answer.values())), np.maximum(expected, 0), atol=1e-5)
    if as_graph:
        np.testing.assert_allclose(answer["output2"], expected, atol=1e-5)
