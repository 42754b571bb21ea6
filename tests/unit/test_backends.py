"""Each backend loads real files, says what they take and give, and says what is wrong with broken ones."""

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from cluster_serving.node import quickstart
from cluster_serving.node.models.base import Array, Backend, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import detect, load
from cluster_serving.node.models.openvino import ov

ops: Any = ov.opset13
HELD_OUT = Path(quickstart.__file__).parent / "held_out.npz"
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
IDS = np.array([10, 20], np.int64)


def load_from(path: Path) -> Backend:
    return load(detect(str(path)), LoadOptions())


def failure(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_from(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def write_onnx(path: Path, *, element_type: int = TensorProto.FLOAT, ir_version: int = 8) -> Path:
    """A model of x [N,3] and id [N] to double [N,3] (x times 2) and next [N] (id plus 1)."""
    dtype = helper.tensor_dtype_to_np_dtype(element_type)
    constants = {"two": np.array([2], dtype), "one": np.array([1], np.int64)}
    inputs = [
        helper.make_tensor_value_info("x", element_type, ["N", 3]),
        helper.make_tensor_value_info("id", TensorProto.INT64, ["N"]),
    ]
    if ir_version < 4:  # before version 4 every initializer had to stand among the inputs too
        inputs += [
            helper.make_tensor_value_info("two", element_type, [1]),
            helper.make_tensor_value_info("one", TensorProto.INT64, [1]),
        ]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "two"], ["double"]), helper.make_node("Add", ["id", "one"], ["next"])],
        "small",
        inputs,
        [
            helper.make_tensor_value_info("double", element_type, ["N", 3]),
            helper.make_tensor_value_info("next", TensorProto.INT64, ["N"]),
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version)
    path.write_bytes(model.SerializeToString())
    return path


def assert_small_model(backend: Backend) -> None:
    assert backend.inputs == (TensorSpec("x", "float32", (None, 3)), TensorSpec("id", "int64", (None,)))
    assert backend.outputs == (TensorSpec("double", "float32", (None, 3)), TensorSpec("next", "int64", (None,)))
    for rows in (2, 1):
        outputs = backend.run({"x": ROWS[:rows], "id": IDS[:rows]})
        assert list(outputs) == ["double", "next"]
        np.testing.assert_array_equal(outputs["double"], ROWS[:rows] * 2)
        np.testing.assert_array_equal(outputs["next"], IDS[:rows] + 1)
        assert outputs["next"].dtype == np.int64


@pytest.mark.parametrize("ir_version", [3, 8])
def test_onnx(tmp_path: Path, ir_version: int) -> None:
    """Initializers are no inputs, also in old files that list them as such."""
    write_onnx(tmp_path / "small.onnx", ir_version=ir_version)

    assert_small_model(load_from(tmp_path))


def test_onnx_with_weights_in_a_file_beside_it(tmp_path: Path) -> None:
    model = onnx.load(write_onnx(tmp_path / "small.onnx"))
    onnx.save(model, tmp_path / "small.onnx", save_as_external_data=True, location="small.onnx_data", size_threshold=0)
    assert (tmp_path / "small.onnx_data").stat().st_size > 0

    assert_small_model(load_from(tmp_path))


@pytest.mark.parametrize(("element_type", "dtype"), [(TensorProto.DOUBLE, "float64"), (TensorProto.FLOAT16, "float16")])
def test_onnx_dtypes(tmp_path: Path, element_type: int, dtype: str) -> None:
    backend = load_from(write_onnx(tmp_path / "small.onnx", element_type=element_type))

    assert (backend.inputs[0].dtype, backend.outputs[0].dtype) == (dtype, dtype)
    assert backend.run({"x": ROWS.astype(dtype), "id": IDS})["double"].dtype == dtype


def test_the_quick_start_model_knows_its_digits() -> None:
    backend = load_from(HELD_OUT.parent / "model")
    held_out = np.load(HELD_OUT)
    images: NDArray[np.uint8] = held_out["images"]

    probability = backend.run({"image": images[:, np.newaxis].astype(np.float32)})["probability"]

    assert len(images) == 360
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)
    assert (probability.argmax(axis=1) == held_out["labels"]).mean() >= 0.97


def test_onnx_truncated(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "small.onnx")
    path.write_bytes(path.read_bytes()[:-20])

    assert failure(path).endswith("or is no ONNX file.")


def test_onnx_empty(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    path.touch()

    assert failure(path).endswith("or is no ONNX file.")


def test_onnx_without_inputs(tmp_path: Path) -> None:
    value = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(ROWS))
    graph = helper.make_graph([value], "small", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])])
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    assert "has no inputs" in failure(path)


def test_onnx_of_a_future_opset_says_so_without_places_in_its_source(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "small.onnx")
    model = onnx.load(path)
    model.opset_import[0].version = 99
    onnx.save(model, path)

    assert ": ONNX Runtime only *guarantees* support" in failure(path)


def test_onnx_with_an_unknown_operator(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "small.onnx")
    model = onnx.load(path)
    model.graph.node[0].op_type = "Frobnicate"
    path.write_bytes(model.SerializeToString())

    assert "Frobnicate" in failure(path)


def write_text_onnx(path: Path, output: str) -> Path:
    """A model of words [N] to themselves or to their count."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["words"], ["same"]), helper.make_node("Shape", ["words"], ["count"])],
        "text",
        [helper.make_tensor_value_info("words", TensorProto.STRING, ["N"])],
        [helper.make_tensor_value_info(output, TensorProto.STRING if output == "same" else TensorProto.INT64, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def test_onnx_takes_text(tmp_path: Path) -> None:
    backend = load_from(write_text_onnx(tmp_path / "text.onnx", "count"))

    assert backend.inputs == (TensorSpec("words", "str", (None,)),)
    assert backend.run({"words": np.array(["a", "bcd"], object)})["count"].tolist() == [2]


def test_onnx_gives_text(tmp_path: Path) -> None:
    backend = load_from(write_text_onnx(tmp_path / "text.onnx", "same"))

    assert backend.outputs == (TensorSpec("same", "str", (None,)),)
    assert backend.run({"words": np.array(["a", "bcd"], object)})["same"].tolist() == ["a", "bcd"]


def test_onnx_classifier_that_gives_maps(tmp_path: Path) -> None:
    """Converters of scikit-learn write such classifiers unless told otherwise."""
    path = tmp_path / "maps.onnx"
    maps = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    )
    graph = helper.make_graph(
        [helper.make_node("ZipMap", ["x"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])],
        "maps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_value_info("maps", maps)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())

    backend = load_from(path)

    assert [spec.describe() for spec in backend.outputs] == ["maps map [N]"]
    [found] = backend.run({"x": np.array([[1, 2, 3], [4, 5, 6]], np.float32)}).values()
    assert found.tolist() == [{0: 1, 1: 2, 2: 3}, {0: 4, 1: 5, 2: 6}]


def write_ir(directory: Path) -> Path:
    """The small ONNX model as IR."""
    source = write_onnx(directory / "source")
    model = ov.Core().read_model(source.read_bytes())
    source.unlink()
    ov.serialize(model, directory / "small.xml", directory / "small.bin")
    return directory / "small.xml"


def write_graph(directory: Path, results: list[Any], parameter: Any) -> Path:
    make_model: Any = ov.Model  # its stubs contradict themselves
    model = make_model([ops.result(node) for node in results], [parameter])
    ov.serialize(model, directory / "small.xml", directory / "small.bin")
    return directory / "small.xml"


def test_openvino(tmp_path: Path) -> None:
    write_ir(tmp_path)

    assert_small_model(load_from(tmp_path))


def test_openvino_ports_without_names_and_a_bounded_dimension(tmp_path: Path) -> None:
    x = ops.parameter(ov.PartialShape([ov.Dimension(1, 10), ov.Dimension(3)]), np.float32)
    positive = ops.relu(x)
    backend = load_from(write_graph(tmp_path, [positive, positive], x))

    assert [spec.shape for spec in (*backend.inputs, *backend.outputs)] == [(10, 3)] * 3
    outputs = backend.run({backend.inputs[0].name: ROWS})
    assert len(outputs) == 2
    for output in outputs.values():
        np.testing.assert_array_equal(output, ROWS)


def test_openvino_keeps_the_names_of_the_file_where_compiling_renames_an_input(tmp_path: Path) -> None:
    x = ops.parameter(ov.PartialShape([-1, 3]), np.float32, name="x")
    x.output(0).set_names({"x"})
    same = ops.reshape(x, np.array([0, 3]), special_zero=True)
    same.output(0).set_names({"another"})
    backend = load_from(write_graph(tmp_path, [ops.relu(same)], x))

    assert [spec.name for spec in backend.inputs] == ["x"]
    (output,) = backend.run({"x": ROWS}).values()
    np.testing.assert_array_equal(output, ROWS)


def test_openvino_truncated_definition(tmp_path: Path) -> None:
    path = write_ir(tmp_path)
    path.write_bytes(path.read_bytes()[:500])

    assert "OpenVINO" in failure(path)


def test_openvino_definition_that_is_none(tmp_path: Path) -> None:
    path = write_ir(tmp_path)
    path.write_bytes(b"<html></html>")

    assert "or is no IR of version 10 or newer." in failure(path)


def test_openvino_input_without_a_batch_dimension(tmp_path: Path) -> None:
    x = ops.parameter(ov.PartialShape([]), np.float32, name="x")
    backend = load_from(write_graph(tmp_path, [ops.relu(x)], x))

    assert [(spec.shape, spec.batch_axis) for spec in (*backend.inputs, *backend.outputs)] == [((), None)] * 2
    [output] = backend.run({backend.inputs[0].name: np.array(-3, np.float32)}).values()
    assert (output.shape, output.item()) == ((), 0)


def test_openvino_fails_on_a_batch_in_one_line(tmp_path: Path) -> None:
    backend = load_from(write_ir(tmp_path))

    with pytest.raises(ValueError, match=r"incompatible") as caught:
        backend.run({spec.name: np.zeros((1, 7), spec.dtype) for spec in backend.inputs})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("dtype", "number"), [(np.int64, 1 << 31), (np.int64, -(1 << 40)), (np.uint64, 1 << 63)])
def test_openvino_refuses_whole_numbers_of_more_than_32_bits(tmp_path: Path, dtype: Any, number: int) -> None:
    x = ops.parameter([-1, 1], dtype, name="x")
    x.output(0).set_names({"x"})
    backend = load_from(write_graph(tmp_path, [ops.add(x, ops.constant(dtype(0)))], x))

    with pytest.raises(ModelError, match=f"^input 'x' has {number}, and OpenVINO computes whole numbers in 32 bits"):
        backend.run({"x": np.array([[1], [number]], dtype)})
    (output,) = backend.run({"x": np.array([[0], [(1 << 31) - 1]], dtype)}).values()
    assert output.tolist() == [[0], [(1 << 31) - 1]]


def test_openvino_takes_whole_numbers_of_any_size_where_the_model_makes_floats_of_them(tmp_path: Path) -> None:
    x = ops.parameter([-1, 1], np.int64, name="x")
    x.output(0).set_names({"x"})
    backend = load_from(write_graph(tmp_path, [ops.convert(x, "f32")], x))

    (output,) = backend.run({"x": np.array([[1 << 40]])}).values()

    assert output.tolist() == [[1 << 40]]


def test_openvino_truncated_weights(tmp_path: Path) -> None:
    path = write_ir(tmp_path)
    path.with_suffix(".bin").write_bytes(b"")

    assert "small.bin was cut short or is of another model" in failure(path)


def test_openvino_without_a_fixed_rank(tmp_path: Path) -> None:
    x = ops.parameter(ov.PartialShape.dynamic(), np.float32, name="x")

    assert "dynamic rank" in failure(write_graph(tmp_path, [ops.relu(x)], x))


def test_openvino_with_bfloat16_at_its_border(tmp_path: Path) -> None:
    x = ops.parameter([-1, 3], ov.Type.bf16, name="x")

    assert failure(write_graph(tmp_path, [ops.relu(x)], x)).endswith(
        "holds bf16 values, and only plain numbers can be served."
    )


@pytest.fixture
def python_file(tmp_path: Path) -> Iterator[Path]:
    """A path for a user's file; what importing it leaves behind is taken away."""
    search_path = list(sys.path)
    modules = set(sys.modules)
    yield tmp_path / "small.py"
    sys.path[:] = search_path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write_python(path: Path, source: str) -> Path:
    path.write_text(dedent(source))
    return path


SMALL = """
    from small_helper import FACTOR


    class _Hidden:
        def predict(self, batch):
            raise NotImplementedError


    class Network:
        inputs = [("x", "float32", (None, 3)), ("id", "int64", [None])]

        @property
        def outputs(self):
            return [("double", "float32", (None, 3)), ("next", "int64", (None,))]

        def load(self):
            self.factor = FACTOR

        def predict(self, batch):
            return {"next": batch["id"] + 1, "double": batch["x"].astype("float64") * self.factor, "more": 1}
"""


def test_python(python_file: Path) -> None:
    """The only public class with `predict`; a module beside the file; outputs in order and cast."""
    write_python(python_file, SMALL)
    write_python(python_file.with_name("small_helper.py"), "FACTOR = 2")

    assert_small_model(load_from(python_file))


def test_python_file_with_its_extension_in_capitals_finds_what_lies_beside_it(python_file: Path) -> None:
    source = """
        from pathlib import Path

        class Model:
            inputs = [("x", "float32", (None, int(Path(__file__).with_name("size.txt").read_text())))]
            outputs = inputs

            def predict(self, batch):
                return batch
    """
    python_file.with_name("size.txt").write_text("3")

    backend = load_from(write_python(python_file.with_suffix(".PY"), source))

    assert backend.inputs == (TensorSpec("x", "float32", (None, 3)),)


def test_python_class_made_at_run_time(python_file: Path) -> None:
    text = failure(write_python(python_file, "Model = type('Model', (), {})"))

    assert text == f"{python_file}: class Model has no method predict(self, batch)."


def test_python_class_called_model_wins(python_file: Path) -> None:
    source = """
        class Other:
            def predict(self, batch):
                return {}

        class Model(Other):
            inputs = [("x", float, (None,))]
            outputs = [("x", "float64", (None,))]
    """

    assert load_from(write_python(python_file, source)).inputs == (TensorSpec("x", "float64", (None,)),)


def test_python_syntax_error(python_file: Path) -> None:
    assert failure(write_python(python_file, "x = 1\nclass Model(:\n")) == (
        f"{python_file}, line 2: SyntaxError: invalid syntax"
    )


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        ("\nimport no_such_module", 2, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)", 1, "SystemExit: 3"),
        ("class Model:\n  def predict(self, batch): ...\n  def __init__(self): 1 / 0", 3, "ZeroDivisionError: division by zero"),
        ("class Model:\n  def predict(self, batch): ...\n  def load(self):\n    open('/no/such')", 4, "FileNotFoundError: "),
        ("class Model:\n  def predict(self, batch): ...\n  @property\n  def inputs(self): return self.x", 4, "AttributeError: "),
        ("class Model: ...", 1, "class Model has no method predict(self, batch)."),
        ("class Model:\n  def predict(self, batch): ...", 1, "Model.inputs is missing: "),
        ("class Model:\n  inputs = []\n  def predict(self, batch): ...", 1, "Model.inputs must be a list of "),
    ],
)  # fmt: skip
def test_python_faults_are_located(python_file: Path, source: str, line: int, reason: str) -> None:
    assert failure(write_python(python_file, source)).startswith(f"{python_file}, line {line}: {reason}")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("('x', 'float31', (None,))", "data type 'float31' not understood"),
        ("('x', 'float32')", "'x' must have a shape"),
        ("('x',)", "not enough values"),
        ("'x float32'", "'x' must have a shape"),
        ("'x float32 [N,...]'", "'x' must have a shape"),
        ("'x float31 [N]'", "there is no dtype float31"),
        ("('x', 'float32 (N, 4)')", "is not of the form: name dtype [N,3,224,224]"),
        ("(1, 'float32 [N,4]')", "not enough values"),
        ("(1, 'float32', (None,))", "each has a name"),
        ("('x', 'U5', (None,))", "a dtype of numbers, or str for text"),
        ("('x', 'float32', (None, -1))", "write None for a dimension that may be any size"),
        ("('x', 'float32', (None,)), ('x', 'float32', (None,))", "one name twice"),
    ],
)
def test_python_specs_that_are_wrong(python_file: Path, spec: str, reason: str) -> None:
    write_python(python_file, f"class Model:\n  inputs = [{spec}]\n  def predict(self, batch): ...")

    assert reason in failure(python_file)


@pytest.mark.parametrize(
    "stated",
    [
        "{'x': 'float32 [N,3]', 'the words': 'str [N,?]'}",
        "[('x', 'float32 [N,3]'), ('the words', 'str [N,?]')]",
        "[('x', 'float32', (None, 3)), ('the words', str, (None, None))]",
    ],
)
def test_python_states_what_it_takes_as_text_or_as_tuples(python_file: Path, stated: str) -> None:
    source = f"class Model:\n  inputs = {stated}\n  outputs = ['y float32 [N]']\n  def predict(self, batch): ..."

    backend = load_from(write_python(python_file, source))

    assert backend.inputs == (TensorSpec("x", "float32", (None, 3)), TensorSpec("the words", "str", (None, None)))
    assert backend.outputs == (TensorSpec("y", "float32", (None,)),)


def test_python_takes_text(python_file: Path) -> None:
    source = """
        class Model:
            inputs = [("words", str, (None,))]
            outputs = [("length", "int64", (None,))]

            def predict(self, batch):
                return {"length": [len(word) for word in batch["words"]]}
    """
    backend = load_from(write_python(python_file, source))

    assert backend.inputs == (TensorSpec("words", "str", (None,)),)
    assert backend.run({"words": np.array(["a", "bcd"], object)})["length"].tolist() == [1, 3]


def test_python_gives_text(python_file: Path) -> None:
    source = """
        class Model:
            inputs = [("x", "int64", (None,))]
            outputs = [("digits", str, (None,))]

            def predict(self, batch):
                return {"digits": [str(x) for x in batch["x"]]}
    """
    backend = load_from(write_python(python_file, source))

    assert backend.outputs == (TensorSpec("digits", "str", (None,)),)
    assert backend.run({"x": np.array([1, 23])})["digits"].tolist() == ["1", "23"]


@pytest.mark.parametrize(("source", "found"), [("x = 1", "none"), (
    "class A:\n  def predict(self, b): ...\nclass B(A): ...", "A, B"
)])  # fmt: skip
def test_python_without_a_single_class(python_file: Path, source: str, found: str) -> None:
    assert f"has {found}; call the one to serve Model" in failure(write_python(python_file, source))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("batch['x']", "must return a dict of arrays, not ndarray"),
        ("{'z': batch['x']}", "did not return 'y', only 'z'"),
        ("{'y': batch['x'][:1]}", r"shape \[1, 3\] for 2 rows of y float32 \[N,3\]"),
        ("{'y': batch['x'][:, :2]}", r"shape \[2, 2\] for 2 rows"),
        ("{'y': None}", r"shape \[\] for 2 rows"),
        ("{'y': batch['x'] * 1j}", "'y' as complex numbers: return .real and .imag as two outputs"),
        ("{'y': numpy.ma.masked_less(batch['x'], 1e9)}", "'y' with masked values: fill them"),
    ],
)
def test_python_answers_that_are_wrong(python_file: Path, answer: str, reason: str) -> None:
    source = f"""
        import numpy

        class Model:
            inputs = [("x", "float32", (None, 3))]
            outputs = [("y", "float32", (None, 3))]

            def predict(self, batch):
                return {answer}
    """
    backend = load_from(write_python(python_file, source))

    with pytest.raises(ValueError, match=reason):
        backend.run({"x": ROWS})


@pytest.mark.parametrize(
    ("dtype", "value", "found"),
    [
        ("uint8", [300.0], "300.0 of float64, which uint8 cannot hold"),
        ("uint64", [-1], "-1 of int64, which uint64 cannot hold"),
        ("int64", [math.nan], "nan of float64, which int64 cannot hold"),
        ("bool", [0.3], "0.3 of float64, which bool cannot hold"),
        ("int8", [3.0], 3),
        ("bool", [1], True),
        ("float32", [0.1], np.float32(0.1)),
        ("float16", [1e9], math.inf),
        ("float32", [2**63], np.float32(2**63)),
    ],
)
def test_outputs_of_python_are_cast_without_a_loss_but_for_rounding(
    python_file: Path, dtype: str, value: list[float], found: Any
) -> None:
    backend = load_from(
        write_python(
            python_file,
            f"""
        from math import nan

        class Model:
            inputs = [("x", "float32", (None, 3))]
            outputs = [("y", "{dtype}", (None,))]

            def predict(self, batch):
                return {{"y": {value}}}
    """,
        )
    )
    batch = {"x": ROWS[:1]}

    if isinstance(found, str):
        with pytest.raises(ValueError, match=re.escape(found)):
            backend.run(batch)
    else:
        assert backend.run(batch)["y"] == found


def test_a_run_leaves_its_input_as_it_was(tmp_path: Path) -> None:
    """Inputs are views of memory that is used again."""
    write_onnx(tmp_path / "small.onnx")
    (tmp_path / "ir").mkdir()
    write_ir(tmp_path / "ir")
    batch: dict[str, Array] = {"x": ROWS.copy(), "id": IDS.copy()}

    for path in (tmp_path, tmp_path / "ir"):
        backend = load_from(path)
        first: NDArray[np.float32] = backend.run(batch)["double"].copy()
        batch["x"] += 1
        np.testing.assert_array_equal(backend.run(batch)["double"], first + 2)
        batch["x"] -= 1
    np.testing.assert_array_equal(batch["x"], ROWS)


# Operators that a runtime likes to run in the memory of their input, first of all in the graph.
IN_PLACE = [
    [helper.make_node("Relu", ["x"], ["y"])],
    [helper.make_node("Clip", ["x", "", "two"], ["y"])],
    [helper.make_node("Mul", ["x", "two"], ["y"])],
    [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Relu", ["same"], ["y"])],
    [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("Neg", ["flat"], ["y"])],
    [helper.make_node("Unsqueeze", ["x", "first"], ["up"]), helper.make_node("Sigmoid", ["up"], ["y"])],
    [helper.make_node("ScatterElements", ["x", "place", "update"], ["y"], axis=1)],
    [helper.make_node("Concat", ["x", "x"], ["twice"], axis=1), helper.make_node("Abs", ["twice"], ["y"])],
    [helper.make_node("BatchNormalization", ["x", *["ones"] * 4], ["y"])],
]


@pytest.mark.parametrize("nodes", IN_PLACE, ids=lambda nodes: nodes[-1].op_type)
@pytest.mark.parametrize("rows", [2, 200_000])
@pytest.mark.parametrize("runtime", ["onnx", "openvino"])
def test_no_runtime_works_in_the_memory_that_it_reads_in_place(
    tmp_path: Path, nodes: list[Any], rows: int, runtime: str
) -> None:
    constants = {
        "two": np.float32(2),
        "first": np.array([1]),
        "place": np.array([[0, 2]]),
        "update": np.array([[7, 8]], np.float32),
        "ones": np.ones(3, np.float32),
    }
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items() if name in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if runtime == "onnx":
        onnx.save(model, tmp_path / "small.onnx")
    else:
        ov.serialize(ov.Core().read_model(model.SerializeToString()), tmp_path / "small.xml", tmp_path / "small.bin")
    backend = load_from(tmp_path)
    before = np.random.default_rng(3).normal(size=(rows, 3)).astype(np.float32)
    batch = {"x": before.copy()}

    first, again = (backend.run(batch)["y"].copy() for _ in range(2))

    np.testing.assert_array_equal(batch["x"], before)
    np.testing.assert_array_equal(first, again)


def test_python_that_works_in_place_gets_memory_of_its_own(python_file: Path) -> None:
    source = """
        class Model:
            inputs = [("x", "float32", (None, 3)), ("words", str, (None,))]
            outputs = [("y", "float32", (None, 3))]

            def predict(self, batch):
                batch["x"] *= 2
                batch["words"][:] = "changed"
                batch["y"] = batch.pop("x")
                return batch
    """
    backend = load_from(write_python(python_file, source))
    batch: dict[str, Array] = {"x": ROWS.copy(), "words": np.array(["a", "b"], object)}

    for _ in range(2):
        np.testing.assert_array_equal(backend.run(batch)["y"], ROWS * 2)
    assert list(batch) == ["x", "words"]
    np.testing.assert_array_equal(batch["x"], ROWS)
    assert batch["words"].tolist() == ["a", "b"]
