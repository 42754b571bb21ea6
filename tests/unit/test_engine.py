"""The same model through its own runtime and through OpenVINO: the same names, the same answers, or a reason why not."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from structlog.testing import capture_logs

from cluster_serving.node.models import detect
from cluster_serving.node.models.base import Array, Backend, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.conversion import convert
from cluster_serving.node.models.engine import compare, load
from cluster_serving.node.models.openvino import ov
from cluster_serving.node.models.tensorflow.runtime import tf
from cluster_serving.node.models.torch.files import no_deprecations
from cluster_serving.node.specs import Engine, Runtime

OPTIONS = LoadOptions()
NATIVE, OPENVINO = Runtime("native", "f32"), Runtime("openvino", "f32")
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
RANDOM = np.random.default_rng(5)


def write_onnx(path: Path, nodes: list[Any], outputs: dict[str, Any], shape: list[Any], **constants: Array) -> Path:
    """A model of x float32 `shape` to `outputs` of an ONNX element type each."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, element, None) for name, element in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=OPSETS, ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def write_classifier(path: Path, shape: list[Any] | None = None) -> Path:
    """Probabilities and class of 8 numbers; the outputs and the tensors within share names that sort differently."""
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["a_logits"]),
        helper.make_node("Softmax", ["a_logits"], ["probability"]),
        helper.make_node("Identity", ["a_logits"], ["logits"]),
        helper.make_node("ArgMax", ["a_logits"], ["class"], axis=1, keepdims=0),
    ]
    weights = np.random.default_rng(7).normal(size=(8, 5)).astype(np.float32)
    outputs = {"probability": TensorProto.FLOAT, "logits": TensorProto.FLOAT, "class": TensorProto.INT64}
    return write_onnx(path, nodes, outputs, shape or ["N", 8], weights=weights)


def write_noise(path: Path) -> Path:
    """What no two runs agree about."""
    return write_onnx(
        path, [helper.make_node("RandomUniformLike", ["x"], ["noise"])], {"noise": TensorProto.FLOAT}, ["N", 8]
    )


def chosen(path: Path, batch: int = 8, options: LoadOptions = OPTIONS) -> tuple[Backend, Engine, dict[str, Any]]:
    with capture_logs() as logs:
        backend, runtime = load(detect.detect(str(path)), options, Runtime("auto", "f32"), batch)
    (line,) = [line for line in logs if line["event"] == "engine chosen"]
    assert line["engine"] == runtime.engine
    return backend, runtime.engine, dict(line)


def assert_same(native: Backend, other: Backend, inputs: dict[str, Array]) -> None:
    assert (other.inputs, other.outputs) == (native.inputs, native.outputs)
    expected, found = native.run(inputs), other.run(inputs)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
        assert found[name].dtype == array.dtype


def test_openvino_gives_an_onnx_model_the_names_and_answers_of_onnx_runtime(tmp_path: Path) -> None:
    model = detect.detect(str(write_classifier(tmp_path / "small.onnx")))

    native, _ = load(model, OPTIONS, NATIVE, 8)
    other, runtime = load(model, OPTIONS, OPENVINO, 8)

    assert (runtime, type(other).__name__) == (OPENVINO, "ConvertedBackend")
    for rows in (3, 1, 8):
        assert_same(native, other, {"x": RANDOM.random((rows, 8), np.float32)})


def test_auto_takes_the_faster_one_and_logs_both_times(tmp_path: Path) -> None:
    backend, engine, line = chosen(write_classifier(tmp_path / "small.onnx"))

    assert line["agree"] is True
    assert 0 <= line["largest_difference"] < 1e-4
    assert engine == ("openvino" if line["openvino_ms"] < line["native_ms"] else "native")
    assert (type(backend).__name__ == "ConvertedBackend") == (engine == "openvino")


def test_auto_keeps_to_the_batch_that_a_model_was_made_for(tmp_path: Path) -> None:
    _, _, line = chosen(write_classifier(tmp_path / "small.onnx", [3, 8]))

    assert line["agree"] is True


def test_auto_stays_native_where_the_outputs_differ(tmp_path: Path) -> None:
    backend, engine, line = chosen(write_noise(tmp_path / "noise.onnx"))

    assert (engine, type(backend).__name__, line["agree"]) == ("native", "OnnxBackend", False)
    assert line["openvino_ms"] > 0
    assert line["native_ms"] > 0


def test_auto_stays_native_where_a_shape_is_free(tmp_path: Path) -> None:
    path = write_onnx(
        tmp_path / "free.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"y": TensorProto.FLOAT}, ["N", "M"]
    )

    _, engine, line = chosen(path)

    assert (engine, line["reason"]) == ("native", "inputs have a free shape (modelInputs can fix it), or are text")


def test_auto_stays_native_where_openvino_cannot_follow(tmp_path: Path) -> None:
    """An operator that ONNX Runtime alone has; openvino, when it is asked for, fails for the same reason."""
    node = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=0.5)
    path = write_onnx(tmp_path / "own.onnx", [node], {"y": TensorProto.FLOAT}, ["N", 8])

    _, engine, line = chosen(path)
    with pytest.raises(ModelError) as caught:
        load(detect.detect(str(path)), OPTIONS, OPENVINO, 8)

    assert engine == "native"
    assert line["reason"] == str(caught.value)
    assert str(caught.value).startswith(f"{path} cannot be run by OpenVINO")
    assert "Binarizer" in line["reason"]
    assert "\n" not in line["reason"]


def test_a_missing_openvino_is_no_reason_not_to_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_classifier(tmp_path / "small.onnx")
    monkeypatch.setitem(sys.modules, "cluster_serving.node.models.conversion", None)
    monkeypatch.delattr("cluster_serving.node.models.conversion")

    _, engine, line = chosen(path)

    assert engine == "native"
    assert "pip install 'cluster-serving[openvino]'" in line["reason"]


def test_openvino_models_have_one_engine(tmp_path: Path) -> None:
    source = write_classifier(tmp_path / "small.onnx")
    ov.save_model(ov.Core().read_model(source), tmp_path / "ir.xml")
    model = detect.detect(str(tmp_path / "ir.xml"))

    engines: tuple[Engine, ...] = ("native", "auto", "openvino")
    for engine in engines:
        backend, taken = load(model, OPTIONS, Runtime(engine, "f32"), 8)
        assert type(backend).__name__ == "OpenvinoBackend"
        assert taken == (OPENVINO if engine == "openvino" else NATIVE)


def test_openvino_reports_to_nobody(tmp_path: Path) -> None:
    """Its telemetry would begin with the import, and leave files in ~/intel."""
    path = write_classifier(tmp_path / "small.onnx")
    home = tmp_path / "home"
    home.mkdir()
    code = f"""
import sys
from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.detect import detect
from cluster_serving.node.models.engine import load
from cluster_serving.node.specs import Runtime
load(detect({str(path)!r}), LoadOptions(), Runtime("openvino", "f32"), 8)
from openvino import convert_model
convert_model({str(path)!r})
assert "openvino_telemetry.main" not in sys.modules
"""
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"HOME": str(home)}

    subprocess.run([sys.executable, "-c", code], env=environment, check=True)

    assert not (home / "intel").exists()


def test_python_models_have_only_their_own_engine(tmp_path: Path) -> None:
    path = tmp_path / "small.py"
    path.write_text(
        'class Model:\n  inputs = outputs = [("x", "float32", (None, 2))]\n  def predict(self, batch): return batch\n'
    )

    _, engine, line = chosen(path)
    with pytest.raises(ModelError, match=r"OpenVINO cannot read the format Python \(\.py\); set engine: native"):
        load(detect.detect(str(path)), OPTIONS, OPENVINO, 8)

    assert (engine, "cannot read the format" in line["reason"]) == ("native", True)


class TorchModel:
    """The least that a backend of torch has."""

    outputs: tuple[TensorSpec, ...] = ()

    def __init__(self, model: Any, call: Any, *inputs: TensorSpec) -> None:
        self.inputs = inputs
        self._model = model
        self._call = call

    def convertible(self) -> Any:
        """The module or program."""
        return self._model

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Call the module."""
        with torch.no_grad():
            scores, sums = self._call(*(torch.from_numpy(batch[spec.name]) for spec in self.inputs))
        return {"scores": scores.numpy(), "sums": sums.numpy()}


class Network(torch.nn.Module):
    """Two inputs that are not interchangeable, two outputs without names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.dense = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores from `x`, sums from both."""
        return self.dense(x).relu(), ids + x.sum(1).long()


INPUTS = (TensorSpec("x", "float32", (None, 4)), TensorSpec("ids", "int64", (None,)))
EXAMPLE = {"x": RANDOM.random((3, 4), np.float32), "ids": np.array([5, 6, 7])}


def scripted(module: torch.nn.Module) -> Any:
    return torch.jit.script(module)


def exported(module: torch.nn.Module) -> Any:
    rows = torch.export.Dim("rows")
    example = tuple(torch.from_numpy(array) for array in EXAMPLE.values())
    return torch.export.export(module, example, dynamic_shapes=({0: rows}, {0: rows}))


def plain(module: torch.nn.Module) -> Any:
    return module


# torch calls its own exchange formats deprecated, and OpenVINO goes through them.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:.isinstance.treespec:FutureWarning")
@pytest.mark.parametrize("form", [scripted, exported, plain])
def test_openvino_runs_what_torch_has_loaded(form: Any) -> None:
    """Inputs and outputs keep names that OpenVINO does not know; nothing of torch is needed any more."""
    module = Network().eval()
    native = TorchModel(form(module), module, *INPUTS)
    expected = native.run(EXAMPLE)

    other = convert(detect.Detected("pytorch", "net.pt"), native, OPTIONS)
    assert (other.inputs, other.outputs) == (INPUTS, ())
    del native, module
    gc.collect()

    found = other.run(EXAMPLE)
    assert list(found) == ["scores", "sums"]
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-5)
    np.testing.assert_array_equal(found["sums"], expected["sums"])


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_openvino_must_know_what_a_torch_model_takes() -> None:
    module = Network().eval()
    native = TorchModel(scripted(module), module, TensorSpec("x", "float32", None), TensorSpec("ids", "int64", None))

    with pytest.raises(ModelError, match="does not tell what it takes, which OpenVINO must know: set modelInputs"):
        convert(detect.Detected("pytorch", "net.pt"), native, OPTIONS)


@pytest.fixture(scope="module")
def tensorflow_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same function as a SavedModel and as a frozen graph: inputs and outputs that sort in another order than they stand."""
    home = tmp_path_factory.mktemp("tensorflow")
    module: Any = tf.Module()
    module.weights = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3))

    def serving(x: Any, ids: Any) -> dict[str, Any]:
        return {"scores": tf.matmul(x, module.weights), "next": ids + 1, "x_again": tf.identity(x)}

    def other(x: Any, ids: Any) -> dict[str, Any]:
        return {"scores": -tf.matmul(x, module.weights), "next": ids, "x_again": x}

    specs = (tf.TensorSpec([None, 4], tf.float32, "x"), tf.TensorSpec([None], tf.int64, "ids"))
    functions = {"serving_default": serving, "other": other}
    signatures = {name: tf.function(function).get_concrete_function(*specs) for name, function in functions.items()}
    tf.saved_model.save(module, str(home / "saved"), signatures=signatures)
    graph: Any = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], "x")
        scores = tf.matmul(x, tf.constant(np.ones((4, 3), np.float32)), name="scores")
        tf.nn.softmax(scores, name="probability")
    (home / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return home


@pytest.mark.parametrize("signature", ["", "other"])
def test_openvino_keeps_the_names_of_a_signature(tensorflow_models: Path, signature: str) -> None:
    model, options = detect.detect(str(tensorflow_models / "saved")), LoadOptions(signature=signature)
    native = detect.load(model, options)

    assert {spec.name for spec in native.outputs} == {"scores", "next", "x_again"}
    assert_same(native, convert(model, native, options), {spec.name: EXAMPLE[spec.name] for spec in native.inputs})


def test_openvino_gives_the_outputs_that_are_asked_for(tensorflow_models: Path) -> None:
    model, options = detect.detect(str(tensorflow_models / "frozen.pb")), LoadOptions(outputs=("scores", "x"))
    native = detect.load(model, options)

    assert [spec.name for spec in native.outputs] == ["scores", "x"]
    assert_same(native, convert(model, native, options), {"x": EXAMPLE["x"]})


def test_openvino_runs_the_backend_of_torch(tmp_path: Path) -> None:
    jit: Any = torch.jit
    with no_deprecations():
        jit.save(jit.script(Network().eval()), str(tmp_path / "net.pt"))
    options = LoadOptions(inputs=("x float32 [N,4]", "ids int64 [N]"))
    model = detect.detect(str(tmp_path))
    native = detect.load(model, options)

    assert_same(native, convert(model, native, options), EXAMPLE)


def test_openvino_keeps_the_names_of_a_frozen_graph(tensorflow_models: Path) -> None:
    model = detect.detect(str(tensorflow_models / "frozen.pb"))
    native = detect.load(model, OPTIONS)

    assert_same(native, convert(model, native, OPTIONS), {native.inputs[0].name: EXAMPLE["x"]})


A = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], np.float32)


@pytest.mark.parametrize(
    ("a", "b", "agree"),
    [
        (A, A * np.float32(1.0009), True),
        (A, A * np.float32(1.002), False),
        (A, A + np.float32(5e-5), True),  # of the scale of the output, if not of each value
        (A, np.where(A > 0.7, A + np.float32(2e-2), A), False),
        (A, A[:1], False),
        (A, A.astype(np.float64), False),
        (np.array([[1.0, 1.00005]]), np.array([[1.00005, 1.0]]), True),  # a tie
        (np.array([[1.0, 1.0005]]), np.array([[1.0005, 1.0]]), False),  # close, but another arg max
        (np.array([[np.nan, 1, np.inf]]), np.array([[np.nan, 1, np.inf]]), True),
        (np.array([[np.nan, 1.0]]), np.array([[0.0, 1.0]]), False),
        (np.array([[np.inf, 1.0]]), np.array([[-np.inf, 1.0]]), False),
        (np.array([5000, 7]), np.array([5000, 7]), True),
        (np.array([5000, 7]), np.array([5001, 7]), False),
        (np.array([True]), np.array([False]), False),
        (np.zeros((0, 3)), np.zeros((0, 3)), True),
        (np.zeros((2, 0)), np.zeros((2, 0)), True),
    ],
)
def test_outputs_agree(a: Array, b: Array, agree: bool) -> None:
    assert compare({"y": a}, {"y": b}).agree is agree


def test_every_output_counts() -> None:
    assert compare({"y": A, "z": A}, {"y": A, "z": A + 1}).largest_difference == pytest.approx(1)
    assert not compare({"y": A, "z": A}, {"y": A, "z": A + 1}).agree
    assert not compare({"y": A}, {"z": A}).agree
