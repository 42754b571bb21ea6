"""The three kinds of TensorFlow model: real small ones are made, served, renamed, cut short and mistaken for one another."""

import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from cluster_serving.client.wire.bytes_in_text import bytes_of, text_of
from cluster_serving.node.engines.precision import has_bfloat16
from cluster_serving.node.models.base import Backend, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import detect, load
from support.lazily import Lazily

RUNTIME = "cluster_serving.node.models.tensorflow.runtime"
tf: Any = Lazily(RUNTIME, "tf")
v1: Any = Lazily(RUNTIME, "tf.compat.v1")
SavedModel: Any = Lazily(RUNTIME, "SavedModel")
FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)
IDS = np.array([10, 20], np.int64)
WORDS = np.array(["a", "née"], object)


def load_from(path: Path, **options: Any) -> Backend:
    return load(detect(str(path)), LoadOptions(**options))


def failure(path: Path, at_fault: Path | None = None, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load_from(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert str(at_fault or path) in text
    return text


def spec(shape: list[int | None] | None, dtype: Any = None, name: str | None = None) -> Any:
    return tf.TensorSpec(shape, dtype or tf.float32, name)


def signature(function: Callable[..., Any], *specs: Any) -> Any:
    return tf.function(function).get_concrete_function(*specs)


def same(x: Any) -> dict[str, Any]:
    return {"y": x}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel of TensorFlow 2 with variables, a lookup table and several signatures."""
    directory = tmp_path_factory.mktemp("saved")
    module: Any = tf.Module()
    module.two = tf.Variable(2.0)
    values = tf.lookup.KeyValueTensorInitializer(["a", "née"], ["first", "zweité"])
    module.table = tf.lookup.StaticHashTable(values, default_value="?")

    def serving(x: Any, id: Any) -> dict[str, Any]:  # noqa: A002 - the name of an input
        return {"twice": x * module.two, "next": id + 1}

    def text(words: Any) -> dict[str, Any]:
        return {"length": tf.strings.length(words, "UTF8_CHAR"), "found": module.table.lookup(words)}

    def pixels(image: Any) -> dict[str, Any]:
        return {"is dark": tf.reduce_all(image < 128, axis=[1, 2])}

    def nothing() -> dict[str, Any]:
        return {"two": module.two.read_value()}

    signatures = {
        "serving_default": signature(serving, spec([None, 3], name="x"), spec([None], tf.int64, "id")),
        "text": signature(text, spec([None], tf.string)),
        "pixels": signature(pixels, spec([None, 2, None], tf.uint8)),
        "four": signature(same, spec([4, 3])),
        "one": signature(same, spec([1, 3])),
        "open": signature(same, spec(None, tf.bool)),
        "brain": signature(same, spec([None], tf.bfloat16)),
        "complex": signature(same, spec([None], tf.complex64)),
        "scalar": signature(same, spec([])),
        "nothing": signature(nothing),
    }
    tf.saved_model.save(module, str(directory), signatures)
    return directory


def test_saved_model(saved: Path) -> None:
    """Inputs and outputs are in alphabetical order, as the original bound them."""
    backend = load_from(saved)

    assert backend.inputs == (TensorSpec("id", "int64", (None,)), TensorSpec("x", "float32", (None, 3)))
    assert backend.outputs == (TensorSpec("next", "int64", (None,)), TensorSpec("twice", "float32", (None, 3)))
    for rows in (2, 1):
        outputs = backend.run({"id": IDS[:rows], "x": FLOATS[:rows]})
        assert list(outputs) == ["next", "twice"]
        np.testing.assert_array_equal(outputs["next"], IDS[:rows] + 1)
        np.testing.assert_array_equal(outputs["twice"], FLOATS[:rows] * 2)


@pytest.mark.parametrize("name", ["input-1", "my.input", "image/encoded", "1x"])
def test_inputs_with_names_that_python_does_not_take(tmp_path: Path, name: str) -> None:
    """TensorFlow calls the argument of the function `input_1`, and the input of the signature `input-1`."""

    def twice(x: Any) -> dict[str, Any]:
        return {"twice": x * 2}

    double = tf.function(twice, input_signature=[spec([None, 3], name=name)])
    tf.saved_model.save(tf.Module(), str(tmp_path), double)

    backend = load_from(tmp_path)

    assert backend.inputs == (TensorSpec(name, "float32", (None, 3)),)
    np.testing.assert_array_equal(backend.run({name: FLOATS})["twice"], FLOATS * 2)


def test_text_in_and_out(saved: Path) -> None:
    backend = load_from(saved, signature="text")

    assert backend.inputs == (TensorSpec("words", "str", (None,), takes_bytes=True),)
    assert [(output.name, output.dtype) for output in backend.outputs] == [("found", "str"), ("length", "int32")]
    outputs = backend.run({"words": WORDS})
    assert outputs["found"].tolist() == ["first", "zweité"]
    assert outputs["found"].dtype == object
    assert outputs["length"].tolist() == [1, 3]


@pytest.mark.parametrize("name", ["png_bytes", "png"])
def test_bytes_that_are_no_text(tmp_path: Path, name: str) -> None:
    """They reach the answer where the name says so, and are an error of the record elsewhere."""
    content = np.array([b"\x89PNG\xff", "née".encode()], object)

    def chosen(x: Any) -> dict[str, Any]:
        return {name: tf.gather(tf.constant(content), x)}

    give = tf.function(chosen, input_signature=[spec([None], tf.int64)])
    tf.saved_model.save(tf.Module(), str(tmp_path), give)
    backend = load_from(tmp_path)

    assert backend.run({"x": np.array([1])})[name].tolist() == ["née"]
    if name == "png":
        with pytest.raises(ModelError, match="output 'png' holds bytes that are not UTF-8 text: export the model"):
            backend.run({"x": np.array([1, 0])})
    else:
        field = json.loads(json.dumps(backend.run({"x": np.array([1, 0])})[name].tolist()))
        assert [bytes_of(text) for text in field] == ["née".encode(), b"\x89PNG\xff"]


def test_bytes_for_an_input_of_strings(tmp_path: Path) -> None:
    """A serialized example, or a JPEG that the model decodes, reaches the model as it is."""
    example = tf.train.Example()
    example.features.feature["a"].float_list.value.extend([1.5, -2.25])

    def parsed(examples: Any) -> Any:
        return tf.io.parse_example(examples, {"a": tf.io.FixedLenFeature([2], tf.float32)})["a"]

    tf.saved_model.save(tf.Module(), str(tmp_path), tf.function(parsed, input_signature=[spec([None], tf.string)]))
    backend = load_from(tmp_path, inputs=("examples str [N]",))
    content = example.SerializeToString()

    assert [each.takes_bytes for each in backend.inputs] == [True]
    with pytest.raises(UnicodeDecodeError):
        content.decode()
    (found,) = backend.run({"examples": np.array([text_of(content)] * 2, object)}).values()
    assert found.tolist() == [[1.5, -2.25]] * 2
    with pytest.raises(UnicodeEncodeError):
        backend.run({"examples": np.array(["\ud83d"], object)})


def test_bytes_and_a_free_dimension(saved: Path) -> None:
    backend = load_from(saved, signature="pixels")

    assert backend.inputs == (TensorSpec("image", "uint8", (None, 2, None)),)
    for width in (1, 5):
        images = np.full((3, 2, width), [[[1]], [[200]], [[127]]], np.uint8)
        assert backend.run({"image": images})["is dark"].tolist() == [True, False, True]


@pytest.mark.parametrize(("signature", "batch"), [("four", 4), ("one", 1)])
def test_a_fixed_batch(saved: Path, signature: str, batch: int) -> None:
    backend = load_from(saved, signature=signature)

    assert backend.inputs[0].batch == backend.outputs[0].batch == batch
    rows = np.ones((batch, 3), np.float32)
    np.testing.assert_array_equal(backend.run({"x": rows})["y"], rows)


def test_an_unknown_rank(saved: Path) -> None:
    backend = load_from(saved, signature="open")

    assert (*backend.inputs, *backend.outputs) == (TensorSpec("x", "bool", None), TensorSpec("y", "bool", None))
    for shape in ((2,), (2, 3, 1)):
        assert backend.run({"x": np.ones(shape, bool)})["y"].shape == shape


def test_an_unknown_rank_that_the_configuration_knows(saved: Path) -> None:
    backend = load_from(saved, signature="open", inputs=("x bool [N,2]",))

    assert backend.inputs == (TensorSpec("x", "bool", (None, 2)),)


def test_bfloat16_is_float32_outside(saved: Path) -> None:
    backend = load_from(saved, signature="brain")

    assert (*backend.inputs, *backend.outputs) == (
        TensorSpec("x", "float32", (None,)),
        TensorSpec("y", "float32", (None,)),
    )
    found = backend.run({"x": np.array([1, 3.14159], np.float32)})["y"]
    assert found.dtype == np.float32
    assert found.tolist() == [1, 3.140625]


def test_a_single_number(saved: Path) -> None:
    backend = load_from(saved, signature="scalar")

    [spec] = backend.inputs
    assert (spec.shape, spec.batch_axis) == ((), None)
    [output] = backend.run({"x": np.array(3, spec.dtype)}).values()
    assert output.shape == ()


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        ("complex", "'x' holds complex64 values, and only plain numbers and text can be served."),
        ("nothing", "takes no input"),
        (
            "train",
            "has no signature 'train', only brain, complex, four, nothing, one, open, pixels, scalar, serving_default, text.",
        ),
    ],
)
def test_signatures_that_cannot_be_served(saved: Path, signature: str, reason: str) -> None:
    assert reason in failure(saved, signature=signature)


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (("x", "id"), ("twice",)),
        (("serving_default_x:0", "serving_default_id:0"), ("StatefulPartitionedCall_1:1",)),
        (("x", "id", "x"), ("twice", "StatefulPartitionedCall_1:1")),
    ],
)
def test_inputs_and_outputs_chosen_by_key_or_tensor(
    saved: Path, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    backend = load_from(saved, inputs=inputs, outputs=outputs)

    assert [each.name for each in backend.inputs] == ["x", "id"]
    assert [each.name for each in backend.outputs] == ["twice"]
    assert list(backend.run({"x": FLOATS, "id": IDS})) == ["twice"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"inputs": ("z",)}, "has no input 'z', only id, x, serving_default_id:0, serving_default_x:0."),
        ({"outputs": ("z:0",)}, "has no output 'z:0', only next, twice, StatefulPartitionedCall_1:0, StatefulPartitionedCall_1:1."),
        ({"inputs": ("x",)}, "the signature 'serving_default' needs the input 'id' as well."),
    ],
)  # fmt: skip
def test_names_that_the_signature_does_not_have(saved: Path, options: dict[str, Any], reason: str) -> None:
    assert reason in failure(saved, **options)


def test_saved_model_as_text(saved: Path, tmp_path: Path) -> None:
    directory = tmp_path / "text"
    shutil.copytree(saved, directory)
    model = SavedModel.FromString((directory / "saved_model.pb").read_bytes())
    (directory / "saved_model.pb").unlink()
    (directory / "saved_model.pbtxt").write_text(text_format.MessageToString(model))

    assert load_from(directory).run({"x": FLOATS, "id": IDS})["next"].tolist() == [11, 21]
    (directory / "saved_model.pbtxt").write_text("meta_graphs {")
    assert "is truncated, or it is no SavedModel" in failure(directory, directory / "saved_model.pbtxt")


def save_without_variables(directory: Path, **signatures: Any) -> Path:
    tf.saved_model.save(tf.Module(), str(directory), signatures or None)
    return directory


def test_saved_model_without_a_variables_directory(tmp_path: Path) -> None:
    save_without_variables(tmp_path, only=signature(same, spec([None, 3])))
    shutil.rmtree(tmp_path / "variables")

    np.testing.assert_array_equal(load_from(tmp_path).run({"x": FLOATS})["y"], FLOATS)


@pytest.mark.parametrize("folder", ["model [v2]", "back\\slash"])
def test_folders_whose_names_would_be_patterns(saved: Path, tmp_path: Path, folder: str) -> None:
    shutil.copytree(saved, tmp_path / folder)

    backend = load_from(tmp_path / folder)

    np.testing.assert_array_equal(backend.run({"x": FLOATS, "id": IDS})["twice"], FLOATS * 2)
    data = next((tmp_path / folder / "variables").glob("*.data-*"))
    data.write_bytes(data.read_bytes()[:1])
    assert "is missing, truncated or damaged" in failure(tmp_path / folder, data)


def test_saved_model_with_variables_but_without_their_directory(saved: Path, tmp_path: Path) -> None:
    shutil.copy(saved / "saved_model.pb", tmp_path)

    assert "variables" in failure(tmp_path)


def test_saved_model_with_truncated_variables(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "copy")
    data = next((tmp_path / "copy" / "variables").glob("*.data-*"))
    data.write_bytes(data.read_bytes()[:1])

    assert failure(tmp_path / "copy", data).endswith("copy it again, or save the model again.")


def test_saved_model_without_the_index_of_its_variables(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "copy")
    index = tmp_path / "copy" / "variables" / "variables.index"
    index.unlink()

    assert "is missing" in failure(tmp_path / "copy", index)


def test_saved_model_without_signatures(tmp_path: Path) -> None:
    assert "has no signature to serve" in failure(save_without_variables(tmp_path))


def test_saved_model_with_several_signatures_and_no_default(tmp_path: Path) -> None:
    only = signature(same, spec([None]))
    save_without_variables(tmp_path, b=only, a=only)

    for names in ((), ("y",)):
        assert failure(tmp_path, inputs=names, outputs=names).endswith(
            "has several signatures: set modelSignature to one of a, b."
        )


def test_saved_model_truncated_or_something_else(saved: Path, tmp_path: Path, frozen: Path) -> None:
    file = tmp_path / "saved_model.pb"

    file.write_bytes((saved / "saved_model.pb").read_bytes()[:-100])
    assert failure(tmp_path, file).endswith("is truncated, or it is no SavedModel: export the model again.")
    file.write_bytes(b"")
    assert "is no SavedModel" in failure(tmp_path, file)
    shutil.copy(frozen, file)
    assert "call it frozen_inference_graph.pb" in failure(tmp_path, file)


def build_graph(*, resource: bool = False, train: bool = False) -> tuple[Any, Any]:
    """A graph of TensorFlow 1 and its session: x [N,3] and id [N] to twice (two variables), next and a looked up word."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None, 3], "x")
        ids = v1.placeholder(tf.int64, [None], "id")
        v1.placeholder_with_default(tf.constant(False), [], "training")
        two = v1.get_variable("two", initializer=[[2.0, 2.0, 2.0]], use_resource=resource)
        twice = tf.multiply(tf.identity(x, "inner"), two, "twice")
        tf.add(ids, 1, "next")
        values = tf.lookup.KeyValueTensorInitializer(tf.constant([10, 20], tf.int64), tf.constant(["ten", "twenty"]))
        table = v1.lookup.StaticHashTable(values, "?")
        tf.identity(table.lookup(ids), "word")
        if train:
            y = v1.placeholder(tf.float32, [None, 3], "y")
            loss = tf.reduce_mean(tf.square(twice - y), name="loss")
            v1.summary.scalar("loss", loss)
            v1.train.AdamOptimizer(0.1).minimize(loss)
        session = v1.Session(graph=graph)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
    return graph, session


@pytest.fixture(scope="module", params=[False, True], ids=["ref", "resource"])
def saved_v1(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("v1") / "model"
    graph, session = build_graph(resource=request.param)
    with graph.as_default(), session:
        get: Any = graph.get_tensor_by_name
        info = v1.saved_model.build_tensor_info
        predict = v1.saved_model.build_signature_def(
            {"images": info(get("x:0")), "ids": info(get("id:0"))},
            {"scores": info(get("twice:0")), "labels": info(get("word:0"))},
            "tensorflow/serving/predict",
        )
        builder = v1.saved_model.Builder(str(directory))
        builder.add_meta_graph_and_variables(session, ["serve"], {"predict": predict}, main_op=v1.tables_initializer())
        builder.save()
    return directory


def test_saved_model_of_tensorflow_1(saved_v1: Path) -> None:
    backend = load_from(saved_v1)

    assert backend.inputs == (TensorSpec("ids", "int64", (None,)), TensorSpec("images", "float32", (None, 3)))
    assert backend.outputs == (TensorSpec("labels", "str", (None,)), TensorSpec("scores", "float32", (None, 3)))
    outputs = backend.run({"ids": IDS, "images": FLOATS})
    assert outputs["labels"].tolist() == ["ten", "twenty"]
    np.testing.assert_array_equal(outputs["scores"], FLOATS * 2)


def test_saved_model_of_several_graphs(saved_v1: Path, tmp_path: Path) -> None:
    """The one that is tagged to be served is served."""
    shutil.copytree(saved_v1, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "saved_model.pb"
    model = SavedModel.FromString(file.read_bytes())
    model.meta_graphs.add().CopyFrom(model.meta_graphs[0])
    for tags in (["train"], ["serve", "gpu"]):
        model.meta_graphs[1].meta_info_def.tags[:] = tags
        file.write_bytes(model.SerializeToString())
        assert len(load_from(tmp_path).inputs) == 2

    model.meta_graphs[0].meta_info_def.tags[:] = ["serve", "tpu"]
    file.write_bytes(model.SerializeToString())
    assert failure(tmp_path, file).endswith(
        "holds several graphs, tagged serve+tpu, serve+gpu: export one, with the tag serve."
    )


def test_sparse_tensors_in_a_signature(saved_v1: Path, tmp_path: Path) -> None:
    shutil.copytree(saved_v1, tmp_path, dirs_exist_ok=True)
    model = SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    info = model.meta_graphs[0].signature_def["predict"].inputs["ids"]
    info.coo_sparse.values_tensor_name = info.coo_sparse.indices_tensor_name = "id:0"
    info.coo_sparse.dense_shape_tensor_name = "id:0"
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())

    assert "'ids' is sparse or ragged" in failure(tmp_path)


def test_tensors_out_of_the_graph_of_tensorflow_1(saved_v1: Path) -> None:
    """`model.inputs` and `model.outputs` of the original name tensors that no signature names; keys work as well."""
    backend = load_from(saved_v1, inputs=("inner:0", "ids"), outputs=("next:0", "twice:0"))

    assert backend.inputs == (TensorSpec("inner", "float32", (None, 3)), TensorSpec("ids", "int64", (None,)))
    assert [each.name for each in backend.outputs] == ["next", "scores"]
    outputs = backend.run({"inner": FLOATS, "ids": IDS})
    np.testing.assert_array_equal(outputs["scores"], FLOATS * 2)
    np.testing.assert_array_equal(outputs["next"], IDS + 1)


def test_names_that_the_graph_of_tensorflow_1_does_not_have(saved_v1: Path) -> None:
    text = failure(saved_v1, inputs=("z:0",), outputs=("next:0",))
    assert "has no tensor 'z:0', only x:0, id:0, " in text
    assert "the outputs need further inputs: x:0." in failure(saved_v1, inputs=("id:0",), outputs=("next:0", "twice:0"))


def freeze(path: Path, outputs: list[str], graph: Any, session: Any) -> Path:
    constants = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), outputs)
    path.write_bytes(constants.SerializeToString())
    return path


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frozen") / "Any name.pb"
    graph, session = build_graph()
    fills = next(op.name for op in graph.get_operations() if op.type.startswith("LookupTableImport"))
    with session:
        return freeze(path, ["twice", "next", "word", fills], graph, session)


def test_frozen_graph_without_a_description(frozen: Path) -> None:
    """Placeholders are the inputs, what nothing else uses is the output, and lookup tables are filled."""
    backend = load_from(frozen)

    assert backend.inputs == (TensorSpec("x", "float32", (None, 3)), TensorSpec("id", "int64", (None,)))
    assert [(each.name, each.dtype) for each in backend.outputs] == [
        ("twice", "float32"),
        ("next", "int64"),
        ("word", "str"),
    ]
    outputs = backend.run({"x": FLOATS, "id": IDS})
    np.testing.assert_array_equal(outputs["twice"], FLOATS * 2)
    assert outputs["next"].tolist() == [11, 21]
    assert outputs["word"].tolist() == ["ten", "twenty"]


def describe(frozen: Path, directory: Path, **meta: Any) -> Path:
    shutil.copy(frozen, directory / "frozen_inference_graph.pb")
    (directory / "graph_meta.json").write_text(json.dumps(meta))
    return directory


def test_frozen_graph_with_graph_meta(frozen: Path, tmp_path: Path) -> None:
    describe(frozen, tmp_path, input_names=["id:0", "x:0"], output_names=["twice:0"], temp_tensors=["t"], variables=[])
    backend = load_from(tmp_path)

    assert [each.name for each in backend.inputs] == ["id", "x"]
    assert [each.name for each in backend.outputs] == ["twice"]
    np.testing.assert_array_equal(backend.run({"id": IDS, "x": FLOATS})["twice"], FLOATS * 2)


def test_the_configuration_wins_over_graph_meta(frozen: Path, tmp_path: Path) -> None:
    describe(frozen, tmp_path, input_names=["id:0"], output_names=["next:0"])
    backend = load_from(tmp_path, inputs=("inner:0 float32 [N,3]",), outputs=("twice:0",))

    assert backend.inputs == (TensorSpec("inner", "float32", (None, 3)),)
    np.testing.assert_array_equal(backend.run({"inner": FLOATS})["twice"], FLOATS * 2)


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        (
            {"input_names": ["x"], "output_names": ["twice:0"]},
            "Input names require to be Tensor names, but <x> looks like a operation name, please try <x:0> instead.",
        ),
        (
            {"input_names": ["x:0"], "output_names": ["twice"]},
            "Output names require to be Tensor names, but <twice> looks like a operation name, please try <twice:0> instead.",
        ),
        ({"input_names": ["z:0"], "output_names": ["twice:0"]}, "has no tensor 'z:0', which "),
        ({"input_names": "x:0"}, "must be like "),
    ],
)
def test_graph_meta_that_is_wrong(frozen: Path, tmp_path: Path, meta: dict[str, Any], reason: str) -> None:
    describe(frozen, tmp_path, **meta)

    assert reason in failure(tmp_path, tmp_path / "graph_meta.json")


def test_graph_meta_that_is_no_json(frozen: Path, tmp_path: Path) -> None:
    describe(frozen, tmp_path)
    (tmp_path / "graph_meta.json").write_text("{'input_names':")

    assert "must be like" in failure(tmp_path, tmp_path / "graph_meta.json")


def test_frozen_graph_truncated_or_something_else(frozen: Path, saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pb"

    path.write_bytes(frozen.read_bytes()[:-20])
    assert failure(path).endswith("is no frozen graph, or it is truncated: export the model again.")
    path.write_bytes(b"")
    assert "or it is truncated" in failure(path)
    path.write_text("no protobuf\n")
    assert "is no frozen graph" in failure(path)
    shutil.copy(saved / "saved_model.pb", path)
    assert "but a SavedModel: call it saved_model.pb" in failure(path)


def test_a_graph_that_is_not_frozen(tmp_path: Path) -> None:
    graph, session = build_graph()
    session.close()
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())

    assert "is not frozen, the variable 'two' has no value" in failure(path)


def test_an_operation_that_tensorflow_does_not_know(frozen: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pb"
    path.write_bytes(frozen.read_bytes().replace(b"Mul", b"Nul"))

    assert "Nul" in failure(path)


def test_a_batch_that_tensorflow_refuses(tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        tf.reshape(v1.placeholder(tf.float32, [None, 3], "x"), [-1, 7], "y")
    path = tmp_path / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    backend = load_from(path)

    reason = "^Input to reshape is a tensor with 6 values, but the requested shape requires a multiple of 7$"
    with pytest.raises(ValueError, match=reason):
        backend.run({"x": FLOATS})


def test_a_graph_whose_outputs_cannot_be_told(tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        tf.reduce_sum(v1.placeholder(tf.float32, [None], "x"))
    path = tmp_path / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())

    assert failure(path).endswith("does not tell which tensors are its outputs: name them in modelOutputs.")


def test_the_labels_of_a_loss_are_no_input(tmp_path: Path) -> None:
    """A cross entropy looks at the shapes of its arguments, which nothing then uses."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], "x")
        labels = v1.placeholder(tf.int64, [None], "labels")
        logits = tf.matmul(x, v1.get_variable("weights", [3, 2]))
        tf.nn.softmax(logits, name="probabilities")
        loss = tf.reduce_mean(v1.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))

    backend = load_from(tmp_path)

    assert [each.name for each in backend.inputs] == ["x"]
    assert [each.name for each in backend.outputs] == ["probabilities"]


@pytest.fixture(scope="module", params=[False, True], ids=["ref", "resource"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a checkpoint of training, with an optimizer, a loss, a summary and lines about devices."""
    directory = tmp_path_factory.mktemp("checkpoint")
    with tf.device("/device:GPU:7"):
        graph, session = build_graph(resource=request.param, train=True)
    with graph.as_default(), session:
        v1.train.Saver().save(session, str(directory / "model.ckpt"), global_step=12)
    (directory / "checkpoint").unlink()
    return directory


def test_checkpoint(checkpoint: Path) -> None:
    """Inputs that only training needs, such as the labels, are not asked for."""
    backend = load_from(checkpoint, outputs=("twice:0", "word:0"))

    assert backend.inputs == (TensorSpec("x", "float32", (None, 3)), TensorSpec("id", "int64", (None,)))
    outputs = backend.run({"x": FLOATS, "id": IDS})
    np.testing.assert_array_equal(outputs["twice"], FLOATS * 2)
    assert outputs["word"].tolist() == ["ten", "twenty"]


def test_a_checkpoint_whose_name_would_be_a_pattern(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "step [12]").mkdir()
    for file in checkpoint.iterdir():
        shutil.copy(file, tmp_path / "step [12]" / file.name.replace("model.ckpt", "model[1]*.ckpt"))

    backend = load_from(tmp_path / "step [12]", outputs=("twice:0",))

    np.testing.assert_array_equal(backend.run({"x": FLOATS})["twice"], FLOATS * 2)


def test_outputs_of_a_checkpoint_are_what_nothing_but_training_uses(checkpoint: Path) -> None:
    backend = load_from(checkpoint)

    assert [each.name for each in backend.inputs] == ["id"]
    assert [each.name for each in backend.outputs] == ["next", "word"]


def test_a_signature_in_a_checkpoint_names_inputs_and_outputs(saved_v1: Path, checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    signed = SavedModel.FromString((saved_v1 / "saved_model.pb").read_bytes()).meta_graphs[0]
    path = tmp_path / "model.ckpt-12.meta"
    meta = v1.MetaGraphDef.FromString(path.read_bytes())
    meta.signature_def["predict"].CopyFrom(signed.signature_def["predict"])
    path.write_bytes(meta.SerializeToString())

    backend = load_from(tmp_path)

    assert [each.name for each in backend.inputs] == ["ids", "images"]
    assert [each.name for each in backend.outputs] == ["labels", "scores"]


def test_checkpoint_without_its_data(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    data = next(tmp_path.glob("*.data-*"))
    content = data.read_bytes()
    meta = tmp_path / "model.ckpt-12.meta"

    data.write_bytes(content[:1])
    assert "is missing, truncated or damaged" in failure(tmp_path, data)
    data.unlink()
    assert failure(tmp_path, meta).endswith("put its data model.ckpt-12.data-00000-of-00001 beside it.")


def test_a_meta_graph_that_is_of_no_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    meta = tmp_path / "model.ckpt-12.meta"

    meta.write_bytes(b"")
    assert "holds no graph" in failure(tmp_path, meta)
    with tf.Graph().as_default():
        v1.get_variable("elsewhere", initializer=[1.0])
        v1.train.export_meta_graph(str(meta))
    assert "elsewhere" in failure(tmp_path, meta)


def test_a_meta_graph_without_variables(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    with tf.Graph().as_default():
        tf.multiply(v1.placeholder(tf.float32, [None, 3], "x"), 2, "twice")
        v1.train.export_meta_graph(str(tmp_path / "model.ckpt-12.meta"))

    np.testing.assert_array_equal(load_from(tmp_path).run({"x": FLOATS})["twice"], FLOATS * 2)


@pytest.mark.parametrize(
    ("suffix", "reason"),
    [("meta", "is truncated, or it is no meta graph"), ("index", "is missing, truncated or damaged")],
)
def test_checkpoint_truncated(checkpoint: Path, tmp_path: Path, suffix: str, reason: str) -> None:
    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    file = tmp_path / f"model.ckpt-12.{suffix}"
    file.write_bytes(file.read_bytes()[:-20])

    assert f"{file} {reason}" in failure(tmp_path, file)


def test_a_run_leaves_its_input_as_it_was_and_its_result_alone(saved: Path) -> None:
    """Inputs are views of memory that is used again."""
    backend = load_from(saved, signature="one")
    rows = np.ones((1, 3), np.float32)

    result = backend.run({"x": rows})["y"]
    rows[:] = 5

    np.testing.assert_array_equal(result, np.ones((1, 3)))


def test_an_operation_that_works_in_place(tmp_path: Path) -> None:
    module: Any = tf.Module()

    def add(x: Any) -> dict[str, Any]:
        return {"y": tf.raw_ops.InplaceAdd(x=x, i=[0], v=[[9.0, 9, 9]])}

    tf.saved_model.save(
        module, str(tmp_path), signatures={"serving_default": signature(add, spec([None, 3], name="x"))}
    )
    backend = load_from(tmp_path)
    rows = FLOATS.copy()

    for _ in range(2):
        np.testing.assert_array_equal(backend.run({"x": rows})["y"], FLOATS + np.array([[9], [0]]))
        np.testing.assert_array_equal(rows, FLOATS)


def test_each_model_of_a_process_computes_in_its_own_precision(tmp_path: Path) -> None:
    """Though TensorFlow has one setting for all. Where it does not compute in bfloat16, it keeps to float32."""
    module: Any = tf.Module()
    random = np.random.default_rng(2)
    module.weights = tf.Variable(random.normal(size=(64, 8)).astype(np.float32))

    def product(x: Any) -> dict[str, Any]:
        return {"y": tf.matmul(x, module.weights)}

    function = signature(product, spec([None, 64], name="x"))
    tf.saved_model.save(module, str(tmp_path), function)
    exact, fast = load_from(tmp_path), load_from(tmp_path, precision="bf16")
    rows = random.random((32, 64), np.float32)

    first, second, third, fourth = (model.run({"x": rows})["y"] for model in (exact, fast, exact, fast))

    np.testing.assert_array_equal(first, third)
    np.testing.assert_array_equal(second, fourth)
    np.testing.assert_allclose(first, rows @ module.weights.numpy(), rtol=0, atol=1e-4)
    np.testing.assert_allclose(second, first, rtol=0, atol=0.1)
    assert second.dtype == np.float32
    if has_bfloat16() and platform.machine() == "x86_64":
        assert not np.array_equal(first, second)
