"""Models through their own runtime and through OpenVINO: the same names, the same answers, or a reason why not."""

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

from cluster_serving.client.extras import install_command
from cluster_serving.node.engines.conversion import convert
from cluster_serving.node.engines.engine import Loaded, load
from cluster_serving.node.engines.precision import has_bfloat16
from cluster_serving.node.engines.trials import Trials
from cluster_serving.node.models import detect
from cluster_serving.node.models.base import Array, Backend, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.openvino import ov
from cluster_serving.node.models.runtime import Engine, Runtime
from cluster_serving.node.models.torch.files import no_deprecations
from support.lazily import Lazily

tf: Any = Lazily("cluster_serving.node.models.tensorflow.runtime", "tf")
OPTIONS = LoadOptions()
NATIVE, OPENVINO, AUTO = Runtime("native", "f32"), Runtime("openvino", "f32"), Runtime("auto", "f32")
TRIALS = Trials()
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
    """Write a model whose outputs differ from run to run."""
    return write_onnx(
        path, [helper.make_node("RandomUniformLike", ["x"], ["noise"])], {"noise": TensorProto.FLOAT}, ["N", 8]
    )


def chosen(path: Path, runtime: Runtime = AUTO, trials: Trials = TRIALS) -> tuple[Loaded, list[dict[str, Any]]]:
    """Load a model as on a CPU that has bfloat16; return the choice, and the log lines before the one that names it."""
    with capture_logs() as logs:
        loaded = load(detect.detect(str(path)), OPTIONS, runtime, 8, trials, bfloat16=True)
    assert logs[-1]["event"] == "runtime chosen"
    assert (logs[-1]["engine"], logs[-1]["precision"]) == (loaded.runtime.engine, loaded.runtime.precision)
    return loaded, [dict(line) for line in logs[:-1]]


def assert_same(native: Backend, other: Backend, inputs: dict[str, Array]) -> None:
    assert (other.inputs, other.outputs) == (native.inputs, native.outputs)
    expected, found = native.run(inputs), other.run(inputs)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
        assert found[name].dtype == array.dtype


def test_openvino_gives_an_onnx_model_the_names_and_answers_of_onnx_runtime(tmp_path: Path) -> None:
    model = detect.detect(str(write_classifier(tmp_path / "small.onnx")))

    native, *_ = load(model, OPTIONS, NATIVE, 8)
    other, runtime, _, tried = load(model, OPTIONS, OPENVINO, 8)

    assert (runtime, type(other).__name__, tried) == (OPENVINO, "ConvertedBackend", ())
    for rows in (3, 1, 8):
        assert_same(native, other, {"x": RANDOM.random((rows, 8), np.float32)})


def test_a_bfloat16_output_is_float32_on_openvino_too(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=TensorProto.BFLOAT16),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    outputs = {"narrow": TensorProto.BFLOAT16, "y": TensorProto.FLOAT}
    model = detect.detect(str(write_onnx(tmp_path / "small.onnx", nodes, outputs, ["N", 3])))

    x = np.array([[1e5, 1.001, -3]], np.float32)

    for runtime in (NATIVE, OPENVINO):
        found = load(model, OPTIONS, runtime, 8).backend.run({"x": x})

        assert [array.dtype for array in found.values()] == [np.float32, np.float32]
        np.testing.assert_allclose(found["narrow"], x, rtol=1 / 256)
        np.testing.assert_array_equal(found["y"], np.maximum(x, 0))


def test_a_whole_number_that_openvino_would_cut_is_refused_under_its_own_name(tmp_path: Path) -> None:
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["N", 1]) for name in ("user", "item")]
    output = helper.make_tensor_value_info("same", TensorProto.BOOL, ["N", 1])
    graph = helper.make_graph([helper.make_node("Equal", ["item", "user"], ["same"])], "small", inputs, [output])
    (tmp_path / "small.onnx").write_bytes(
        helper.make_model(graph, opset_imports=OPSETS, ir_version=8).SerializeToString()
    )
    model = detect.detect(str(tmp_path))
    batch = {"user": np.array([[5]]), "item": np.array([[5 + (1 << 32)]])}

    assert not load(model, OPTIONS, NATIVE, 8).backend.run(batch)["same"].any()
    with pytest.raises(
        ModelError,
        match=f"^input 'item' has {5 + (1 << 32)}, and OpenVINO computes whole numbers in 32 bits, from .*; set engine: native$",
    ):
        load(model, OPTIONS, OPENVINO, 8).backend.run(batch)


def test_auto_tells_the_speed_and_the_error_of_each_and_takes_the_faster_one(tmp_path: Path) -> None:
    loaded, lines = chosen(write_classifier(tmp_path / "small.onnx"))

    native, openvino = loaded.candidates
    assert (native.relative_error, native.arg_max_agreement, native.refused) == (0, 1, "")
    assert openvino.relative_error is not None
    assert openvino.relative_error < 1e-5
    assert (openvino.arg_max_agreement, openvino.refused) == (1, "")
    assert native.ms is not None
    assert openvino.ms is not None
    assert loaded.runtime == (NATIVE if native.ms <= 1.03 * openvino.ms else OPENVINO)
    assert (type(loaded.backend).__name__ == "ConvertedBackend") == (loaded.runtime == OPENVINO)
    assert [(line["event"], line["engine"]) for line in lines] == [
        ("runtime tried", "native"),
        ("runtime tried", "openvino"),
    ]
    assert [line["ms"] for line in lines] == pytest.approx([native.ms, openvino.ms], rel=0.01)


def test_auto_keeps_to_the_batch_that_a_model_was_made_for(tmp_path: Path) -> None:
    loaded, _ = chosen(write_classifier(tmp_path / "small.onnx", [3, 8]))

    assert [each.refused for each in loaded.candidates] == ["", ""]


def test_auto_refuses_other_outputs(tmp_path: Path) -> None:
    loaded, lines = chosen(write_noise(tmp_path / "noise.onnx"))

    assert (loaded.runtime, type(loaded.backend).__name__) == (NATIVE, "OnnxBackend")
    assert loaded.candidates[1].refused.endswith("of the largest value, accuracyTolerance is 0.01")
    assert lines[1]["refused"] == loaded.candidates[1].refused
    assert loaded.candidates[1].ms


def test_auto_stays_native_where_a_shape_is_free(tmp_path: Path) -> None:
    """Until somebody says what comes."""
    node = helper.make_node("Relu", ["x"], ["y"])
    path = write_onnx(tmp_path / "free.onnx", [node], {"y": TensorProto.FLOAT}, ["N", "M"])
    np.save(tmp_path / "rows.npy", RANDOM.random((3, 5), np.float32))

    loaded, (line,) = chosen(path)
    with_data, _ = chosen(path, trials=Trials(data=str(tmp_path / "rows.npy")))

    assert (loaded.runtime, loaded.candidates) == (NATIVE, ())
    assert (
        line["event"] == "nothing to try runtimes on: set calibrationData, or the free shape of an input in modelInputs"
    )
    assert [each.refused for each in with_data.candidates] == ["", ""]


def test_auto_stays_native_where_openvino_cannot_follow(tmp_path: Path) -> None:
    """An operator that ONNX Runtime alone has; openvino, when it is asked for, fails for the same reason."""
    node = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=0.5)
    path = write_onnx(tmp_path / "own.onnx", [node], {"y": TensorProto.FLOAT}, ["N", 8])

    loaded, _ = chosen(path)
    for precision in ("f32", "auto"):
        with pytest.raises(ModelError) as caught:
            load(detect.detect(str(path)), OPTIONS, Runtime("openvino", precision), 8, bfloat16=True)

        refused = loaded.candidates[1].refused
        assert loaded.runtime == NATIVE
        assert refused == str(caught.value)
        assert refused.startswith(f"{path} cannot be run by OpenVINO")
        assert "Binarizer" in refused
        assert "\n" not in refused


def test_a_missing_openvino_is_no_reason_not_to_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_classifier(tmp_path / "small.onnx")
    monkeypatch.setitem(sys.modules, "cluster_serving.node.engines.conversion", None)
    monkeypatch.delattr("cluster_serving.node.engines.conversion")

    loaded, _ = chosen(path)

    assert loaded.runtime == NATIVE
    assert install_command("openvino") in loaded.candidates[1].refused


def test_a_model_that_fails_on_made_up_inputs_wants_calibration_data(tmp_path: Path) -> None:
    """A model whose ids must be large fails so; with data of the user's that the model fails on, nothing is served."""
    nodes = [helper.make_node("Reshape", ["x", "wanted"], ["y"])]
    wanted = np.array([7, 7], np.int64)
    path = write_onnx(tmp_path / "own.onnx", nodes, {"y": TensorProto.FLOAT}, ["N", 8], wanted=wanted)
    np.save(tmp_path / "rows.npy", RANDOM.random((3, 8), np.float32))

    loaded, (line,) = chosen(path)
    with pytest.raises(ModelError, match=r"^calibrationData .*rows\.npy: the model fails on it: .*Reshape"):
        chosen(path, trials=Trials(data=str(tmp_path / "rows.npy")))

    assert (loaded.runtime, loaded.candidates) == (NATIVE, ())
    assert line["event"].endswith("the model fails on random inputs; set calibrationData")


def test_bfloat16_is_taken_only_within_the_tolerance(tmp_path: Path) -> None:
    """On CPUs without it OpenVINO computes in float32 all the same."""
    nodes = [helper.make_node("MatMul", ["x", "weights"], ["y"])]
    weights = RANDOM.normal(size=(8, 5)).astype(np.float32)
    path = write_onnx(tmp_path / "small.onnx", nodes, {"y": TensorProto.FLOAT}, ["N", 8], weights=weights)

    loaded, _ = chosen(path, Runtime("openvino", "auto"), Trials(tolerance=0.05))
    strict, _ = chosen(path, Runtime("openvino", "auto"), Trials(tolerance=1e-5))

    assert [(each.engine, each.precision) for each in loaded.candidates] == [("openvino", "f32"), ("openvino", "bf16")]
    f32, bf16 = loaded.candidates
    assert (f32.refused, bf16.refused) == ("", "")
    if has_bfloat16():
        assert strict.runtime == OPENVINO
        assert bf16.relative_error is not None
        assert f32.relative_error is not None
        assert bf16.relative_error > 100 * f32.relative_error
        assert strict.candidates[1].refused.endswith("accuracyTolerance is 1e-05")


def test_what_is_asked_for_is_taken_however_inexact(tmp_path: Path) -> None:
    """The closest one, with a warning."""
    loaded, lines = chosen(write_noise(tmp_path / "noise.onnx"), Runtime("openvino", "auto"))

    error = {each.precision: each.relative_error or 0 for each in loaded.candidates}
    assert all(each.refused for each in loaded.candidates)
    assert loaded.runtime.precision == min(error, key=lambda precision: error[precision])
    assert (lines[-1]["log_level"], lines[-1]["event"]) == (
        "warning",
        "the chosen runtime is less exact than accuracyTolerance",
    )


def test_onnx_runtime_has_no_other_precision(tmp_path: Path) -> None:
    path = write_classifier(tmp_path / "small.onnx")

    with pytest.raises(
        ModelError, match="precision is bf16, and ONNX Runtime computes in the types of the file; set engine: op"
    ):
        load(detect.detect(str(path)), OPTIONS, Runtime("native", "bf16"), 8)
    loaded = load(detect.detect(str(path)), OPTIONS, Runtime("auto", "bf16"), 8)

    assert loaded.runtime == Runtime("openvino", "bf16")


def test_a_cpu_without_bfloat16_is_told_of(tmp_path: Path) -> None:
    model = detect.detect(str(write_classifier(tmp_path / "small.onnx")))

    with capture_logs() as logs:
        loaded = load(model, OPTIONS, Runtime("openvino", "bf16"), 8, bfloat16=False)
        automatic = load(model, OPTIONS, Runtime("openvino", "auto"), 8, bfloat16=False)

    assert (loaded.runtime.precision, automatic.runtime.precision) == ("bf16", "f32")
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "this CPU has no bfloat16: it is imitated, slower than float32; set precision: auto"
    ]
    assert [line["needs"] for line in logs if line["event"] == "INT8 is not tried"] == ["set calibrationData"]


def test_openvino_models_have_one_engine(tmp_path: Path) -> None:
    source = write_classifier(tmp_path / "small.onnx")
    ov.save_model(ov.Core().read_model(source), tmp_path / "ir.xml")
    model = detect.detect(str(tmp_path / "ir.xml"))

    engines: tuple[Engine, ...] = ("native", "auto", "openvino")
    for engine in engines:
        backend, taken, *_ = load(model, OPTIONS, Runtime(engine, "f32"), 8)
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
from cluster_serving.node.engines.engine import load
from cluster_serving.node.models.runtime import Runtime
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

    loaded, _ = chosen(path)
    with pytest.raises(ModelError, match=r"OpenVINO cannot read the format Python \(\.py\); set engine: native"):
        load(detect.detect(str(path)), OPTIONS, OPENVINO, 8)

    assert loaded.runtime == NATIVE
    assert "cannot read the format" in loaded.candidates[1].refused


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

    with pytest.raises(ModelError, match="does not declare its inputs, and OpenVINO needs them: set modelInputs"):
        convert(detect.Detected("pytorch", "net.pt"), native, OPTIONS)


@pytest.fixture(scope="module")
def tensorflow_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a SavedModel of two signatures and a frozen graph; inputs and outputs sort in another order than they stand."""
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


class InPlace(torch.nn.Module):
    """Works in the memory of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice the input, without negative numbers."""
        return x.mul_(2).relu_()


def test_openvino_leaves_the_input_of_a_model_that_works_in_place_as_it_was(tmp_path: Path) -> None:
    jit: Any = torch.jit
    with no_deprecations():
        jit.save(jit.script(InPlace()), str(tmp_path / "net.pt"))
    options = LoadOptions(inputs=("x float32 [N,4]",))
    model = detect.detect(str(tmp_path))
    backend = convert(model, detect.load(model, options), options)
    before = RANDOM.normal(size=(3, 4)).astype(np.float32)
    batch = {"x": before.copy()}

    for _ in range(2):
        np.testing.assert_array_equal(backend.run(batch)["output"], (before * 2).clip(min=0))
        np.testing.assert_array_equal(batch["x"], before)


def test_openvino_keeps_the_names_of_a_frozen_graph(tensorflow_models: Path) -> None:
    model = detect.detect(str(tensorflow_models / "frozen.pb"))
    native = detect.load(model, OPTIONS)

    assert_same(native, convert(model, native, OPTIONS), {native.inputs[0].name: EXAMPLE["x"]})
